-- Health of an InferenceModel for Argo CD, as kstatus has it: see docs/tasks/gitops.md.
-- Argo CD gives base and table, and no string library.
local status = obj.status or {}
if obj.metadata.deletionTimestamp ~= nil then
  return { status = "Progressing", message = "the model is being deleted" }
end
if (status.observedGeneration or 0) ~= obj.metadata.generation then
  return { status = "Progressing", message = "the operator has not looked at this spec yet" }
end
local ready
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Reconciling" and condition.status == "True" then
    return { status = "Progressing", message = condition.message }
  end
  if condition.type == "Stalled" and condition.status == "True" then
    return { status = "Degraded", message = condition.message }
  end
  if condition.type == "Ready" then
    ready = condition
  end
end
if ready ~= nil and ready.status ~= "True" then
  return { status = "Progressing", message = ready.message }
end
return { status = "Healthy", message = ready ~= nil and ready.message or "the model can be used" }
