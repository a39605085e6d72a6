{{- /* Parts of the policies on the operator's account: templates/admission-policies.yaml. */ -}}

{{- /* The head of a policy; takes a list of the root and the policy's own name. */ -}}
{{- define "inference-operator.policyHead" -}}
{{- $root := index . 0 -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ include "inference-operator.policyName" . }}
  labels:
    {{- include "inference-operator.labels" $root | nindent 4 }}
spec:
  failurePolicy: Fail
  # Nobody else's requests are looked at.
  matchConditions:
    - name: by-the-operator
      expression: request.userInfo.username == {{ include "inference-operator.user" $root | toJson }}
{{- end -}}

{{- define "inference-operator.policyName" -}}
{{- printf "%s-%s" (include "inference-operator.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{- define "inference-operator.user" -}}
{{- printf "system:serviceaccount:%s:%s" (include "inference-operator.namespace" .) (include "inference-operator.serviceAccountName" .) -}}
{{- end -}}

{{- /* Namespaces without workers: where one would stand beside what rules the cluster, or beside the operator's own Secrets unless
that namespace is watched by name. */ -}}
{{- define "inference-operator.policyElsewhere" -}}
{{- $forbidden := .Values.admissionPolicy.forbiddenNamespaces -}}
{{- $own := include "inference-operator.namespace" . -}}
{{- if not (has $own .Values.watchNamespaces) -}}
{{- $forbidden = append $forbidden $own | uniq -}}
{{- end -}}
- expression: "!(request.namespace in {{ toJson $forbidden | replace "\"" "'" }})"
  message: the operator makes, changes and deletes nothing in {{ join ", " $forbidden }}; create the job in another namespace
  reason: Forbidden
{{- end -}}

{{- /* A label alone can be written by anybody with a pod; an object of ours is also owned by the job or model that it names. */ -}}
{{- define "inference-operator.policyOurs" -}}
- expression: >-
    [object, oldObject].filter(o, o != null).all(o,
      o.metadata.?labels[?'app.kubernetes.io/managed-by'].orValue('') == 'inference-operator' &&
      o.metadata.?ownerReferences.orValue([]).exists(r,
        r.?controller.orValue(false) && r.apiVersion.startsWith('inference.myorg/') && (
          r.kind == 'InferenceJob' && r.uid in [o.metadata.labels[?'inference.myorg/job-uid'].orValue(''), o.metadata.labels[?'inference.myorg/placeholder-for'].orValue('')] ||
          r.kind == 'InferenceModel' && r.uid == o.metadata.labels[?'inference.myorg/model-uid'].orValue(''))))
  message: the operator makes, changes and deletes only what has its labels and belongs to the InferenceJob or InferenceModel in them
  reason: Forbidden
- expression: object == null || object.metadata.?ownerReferences.orValue([]).size() == 1
  message: what the operator makes has one owner
  reason: Forbidden
{{- end -}}

{{- /* Whether a slice leads to the endpoint picker and to nothing else; an expression in CEL. */ -}}
{{- define "inference-operator.policyPicker" -}}
{{- $picker := .Values.gateway.endpointPicker -}}
{{- if and $picker.enabled .Values.gateway.api.enabled -}}
object != null && variables.service == '{{ include "inference-operator.endpointPicker" . }}' && object.addressType != 'FQDN' && object.?ports.orValue([]).all(p, p.?port.orValue(0) == {{ $picker.port }}) && object.?endpoints.orValue([]).all(e, e.?targetRef.?kind.orValue('') == 'Pod' && e.targetRef.?namespace.orValue('') == '{{ include "inference-operator.namespace" . }}')
{{- else -}}
false
{{- end -}}
{{- end -}}

{{- /* Whether a request is for a slice of the metrics API's Service; an expression in CEL. */ -}}
{{- define "inference-operator.policyMetricsSlice" -}}
{{- $service := include "inference-operator.metricsApi" . -}}
request.namespace == '{{ include "inference-operator.namespace" . }}' && request.name in ['{{ $service }}-ipv4', '{{ $service }}-ipv6']
{{- end -}}

{{- /* What the loader, Python or a runtime obeys: RESERVED_ENVIRONMENT of the operator. */ -}}
{{- define "inference-operator.reservedVariables" -}}
^(LD_|DYLD_|GLIBC_|MALLOC_|PYTHON|INFERENCE_|ORT_|CUDA_|NVIDIA_|TORCH_|PYTORCH_|TRITON|OMP_TOOL|OPENSSL_|BASH_|(PATH|HOME|TMPDIR|SHELL|BROWSER|ENV|IFS|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|RESOLV_HOST_CONF)$)
{{- end -}}

{{- /* How reserved variables begin, those that are one name too; a list in CEL. */ -}}
{{- define "inference-operator.reservedStems" -}}
{{- $pattern := include "inference-operator.reservedVariables" . -}}
{{- $pattern | trimPrefix "^(" | trimSuffix ")" | replace "(" "" | replace ")$" "" | splitList "|" | toJson -}}
{{- end -}}

{{- /* How the operator starts Triton: the only command that a container is given; a list in CEL. */ -}}
{{- define "inference-operator.tritonCommand" -}}
{{- list "tritonserver" "--model-repository=/mnt/triton" "--model-control-mode=explicit" "--http-address=127.0.0.1" "--http-port=8010"
  "--allow-grpc=false" "--allow-metrics=false" "--exit-on-error=false" "--log-info=false" | toJson -}}
{{- end -}}

{{- /* How the operator has placeholder pods wait: COMMAND of its workers/placeholder.py; a list in CEL. */ -}}
{{- define "inference-operator.placeholderCommand" -}}
{{- list "python3" "-I" "-c" "import signal; signal.pause()" | toJson -}}
{{- end -}}

{{- /* The images that workers may have: those of the settings, and what the administrator adds; a list in CEL. */ -}}
{{- define "inference-operator.policyImages" -}}
{{- $settings := include "inference-operator.settings" . | fromYaml -}}
{{- $images := list $settings.workerImage $settings.backends.triton.image $settings.backends.torchscript.image -}}
{{- range $settings.accelerators -}}
{{- $images = append $images (default "" .image) -}}
{{- end -}}
{{- concat (without $images "" | uniq | sortAlpha) .Values.admissionPolicy.images | toJson -}}
{{- end -}}

{{- /* The RuntimeClasses that workers may have: those that jobs may name, whose default is the operator's, and those of classes; a list
in CEL. */ -}}
{{- define "inference-operator.policyRuntimeClasses" -}}
{{- $settings := include "inference-operator.settings" . | fromYaml -}}
{{- $limits := default dict $settings.podTemplate -}}
{{- $names := get $limits "runtimeClasses" | default (ternary (list "nvidia") list (not (hasKey $limits "runtimeClasses"))) -}}
{{- range $settings.accelerators -}}
{{- $names = append $names (default "" .runtimeClassName) -}}
{{- end -}}
{{- without $names "" | uniq | toJson -}}
{{- end -}}

{{- /* What templates may name, by settings.podTemplate and by classes, whose templates are the administrator's: lists by name. */ -}}
{{- define "inference-operator.policyTemplates" -}}
{{- $settings := include "inference-operator.settings" . | fromYaml -}}
{{- $limits := default dict $settings.podTemplate -}}
{{- $secrets := concat .Values.admissionPolicy.secrets (default list $limits.secrets) -}}
{{- $images := default list $limits.images -}}
{{- $accounts := append (default list $limits.serviceAccounts) "default" -}}
{{- $hosts := default list $limits.hostAliases -}}
{{- $prefixes := list "APP_" -}}
{{- range $limits.environment -}}{{- if hasSuffix "*" . -}}{{- $prefixes = append $prefixes (trimSuffix "*" .) -}}{{- end -}}{{- end -}}
{{- range $settings.accelerators -}}
{{- $template := default dict .template -}}
{{- $variables := default list $template.env -}}
{{- range concat (default list $template.initContainers) (default list $template.sidecars) -}}
{{- $images = append $images .image -}}
{{- $variables = concat $variables (default list .env) -}}
{{- end -}}
{{- range $variables -}}{{- with (.valueFrom | default dict).secretKeyRef -}}{{- $secrets = append $secrets .name -}}{{- end -}}{{- end -}}
{{- range $template.envFrom -}}
{{- $prefixes = append $prefixes .prefix -}}
{{- with .secretRef -}}{{- $secrets = append $secrets .name -}}{{- end -}}
{{- end -}}
{{- range $template.volumes -}}{{- with .secret -}}{{- $secrets = append $secrets .secretName -}}{{- end -}}{{- end -}}
{{- with $template.serviceAccountName -}}{{- $accounts = append $accounts . -}}{{- end -}}
{{- range $template.hostAliases -}}{{- $hosts = concat $hosts .hostnames -}}{{- end -}}
{{- end -}}
{{- dict "secrets" (uniq $secrets) "images" (uniq $images) "accounts" (uniq $accounts) "hosts" (uniq $hosts) "prefixes" (uniq $prefixes) | toYaml -}}
{{- end -}}

{{- /* Whether an entry of a list of patterns matches; an expression in CEL, of the list and what is looked for. */ -}}
{{- define "inference-operator.policyMatches" -}}
{{ index . 0 }}.exists(allowed, allowed.endsWith('*') ? {{ index . 1 }}.startsWith(allowed.substring(0, allowed.size() - 1)) : {{ index . 1 }} == allowed)
{{- end -}}

{{- /* Keys of the taints that workers may tolerate: what classes tolerate, what jobs may, and what Kubernetes' admission adds itself
for nodes that fail, and for devices; a list in CEL. */ -}}
{{- define "inference-operator.policyTolerations" -}}
{{- $settings := include "inference-operator.settings" . | fromYaml -}}
{{- $keys := list "node.kubernetes.io/not-ready" "node.kubernetes.io/unreachable" "node.kubernetes.io/memory-pressure" -}}
{{- range $settings.accelerators -}}
{{- $keys = append $keys (default "" .resourceName) -}}
{{- range .tolerations -}}
{{- $keys = append $keys .key -}}
{{- end -}}
{{- end -}}
{{- concat (without $keys "") (default list (default dict $settings.podTemplate).tolerations) | uniq | sortAlpha | toJson -}}
{{- end -}}
