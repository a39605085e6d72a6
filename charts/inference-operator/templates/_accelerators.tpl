{{- /* Refuse what would stop the operator, in its own words: fault_of in accelerator_faults.py, namespace_fault in namespace_limits.py.
What values.schema.json can say by the name of the field is left to it. */ -}}
{{- define "inference-operator.checkAccelerators" -}}
{{- $settings := include "inference-operator.settings" . | fromYaml -}}
{{- $vendors := list -}}
{{- range $settings.accelerators -}}
{{- with .resourceName -}}{{- $vendors = append $vendors (splitList "/" . | first) -}}{{- end -}}
{{- end -}}
{{- range $name, $class := $settings.accelerators -}}
{{- $where := printf "accelerators.%s" $name -}}
{{- if or (gt (len $name) 63) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $name)) -}}
{{- fail (printf "%s: the name must be a DNS label: at most 63 lower-case letters, digits and '-'" $where) -}}
{{- end -}}
{{- if eq $name "auto" -}}{{- fail (printf "%s: auto stands for any class; choose another name" $where) -}}{{- end -}}
{{- include "inference-operator.checkProviders" (list $where $class) -}}
{{- include "inference-operator.checkDevice" (list $where $class) -}}
{{- include "inference-operator.checkNodes" (list $where $class) -}}
{{- include "inference-operator.checkAmounts" (list $where $class $vendors) -}}
{{- include "inference-operator.checkWatts" (list $where $class) -}}
{{- include "inference-operator.checkProvisioning" (list $where $class) -}}
{{- end -}}
{{- $limits := $settings.namespaceLimits | default dict -}}
{{- $named := dict "default" ($limits.default | default dict) -}}
{{- range $name, $own := $limits.overrides -}}{{- $_ := set $named (printf "overrides.%s" $name) $own -}}{{- end -}}
{{- range $part, $own := $named -}}
{{- range $class, $most := $own.maxDevices -}}
{{- if not (hasKey $settings.accelerators $class) -}}
{{- $known := keys $settings.accelerators | sortAlpha | join ", " -}}
{{- fail (printf "namespaceLimits.%s.maxDevices.%s: there is no accelerator class '%s'; choose among %s" $part $class $class $known) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "inference-operator.checkProviders" -}}
{{- $where := printf "%s.executionProviders" (index . 0) -}}
{{- $names := splitList "," (include "inference-operator.providers" (index . 1)) -}}
{{- range $name := $names -}}
{{- if gt (sub (len $names) (len (without $names $name))) 1 -}}{{- fail (printf "%s names %s twice" $where $name) -}}{{- end -}}
{{- end -}}
{{- if has "CPUExecutionProvider" (initial $names) -}}
{{- fail (printf "%s: CPUExecutionProvider takes every model, so what follows it is never used; write it last" $where) -}}
{{- end -}}
{{- if and (has "NvTensorRTRTXExecutionProvider" $names) (has "TensorrtExecutionProvider" $names) -}}
{{- fail (printf "%s: ONNX Runtime takes only one of NvTensorRTRTXExecutionProvider and TensorrtExecutionProvider; make two classes" $where) -}}
{{- end -}}
{{- end -}}

{{- define "inference-operator.checkDevice" -}}
{{- $where := index . 0 -}}{{- $class := index . 1 -}}
{{- with $class.resourceName -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" .) -}}
{{- fail (printf "%s.resourceName is '%s'; write it as nodes have it, for example nvidia.com/gpu" $where .) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $class "deviceMemory" -}}
{{- if not $class.resourceName -}}
{{- fail (printf "%s.deviceMemory is %v, but the class has no device; name its resourceName" $where $class.deviceMemory) -}}
{{- end -}}
{{- if lt (include "inference-operator.quantity" $class.deviceMemory | float64) 16777216.0 -}}
{{- fail (printf "%s.deviceMemory is %v, which is less than 16Mi; write what one worker may take with its unit, for example 8Gi" $where $class.deviceMemory) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "inference-operator.checkNodes" -}}
{{- $where := index . 0 -}}{{- $class := index . 1 -}}
{{- $value := "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?" -}}
{{- $part := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- $key := printf "^(%s(\\.%s)*/)?%s$" $part $part $value -}}
{{- range $label, $wanted := $class.nodeSelector -}}
{{- if not (and (regexMatch $key $label) (regexMatch (printf "^(%s)?$" $value) $wanted)) -}}
{{- fail (printf "%s.nodeSelector: %s=%s is no label that a node can have" $where $label $wanted) -}}
{{- end -}}
{{- end -}}
{{- range $class.tolerations -}}
{{- if and .key (not (regexMatch $key .key)) -}}{{- fail (printf "%s.tolerations: '%s' is no key that a taint can have" $where .key) -}}{{- end -}}
{{- if and .value (ne (.operator | default "Exists") "Equal") -}}
{{- fail (printf "%s.tolerations: %s has a value, which goes with operator: Equal" $where .key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "inference-operator.checkAmounts" -}}
{{- $where := index . 0 -}}{{- $class := index . 1 -}}{{- $vendors := index . 2 -}}
{{- range $part := list "requests" "limits" -}}
{{- range $resource, $text := index $class $part -}}
{{- $at := printf "%s.%s.%s" $where $part $resource -}}
{{- $amount := include "inference-operator.quantity" $text | float64 -}}
{{- if and (eq $resource "memory") (gt $amount 0.0) (lt $amount 16777216.0) -}}
{{- fail (printf "%s is %v, in which no worker starts; write it with its unit, for example 512Mi" $at $text) -}}
{{- end -}}
{{- if eq $resource ($class.resourceName | default "") -}}
{{- if ne $amount 1.0 -}}{{- fail (printf "%s is %v, and a worker computes on one device, which resourceName brings; leave it out" $at $text) -}}{{- end -}}
{{- else if contains "/" $resource -}}
{{- if or (has (splitList "/" $resource | first) $vendors) (regexMatch "(?i)gpu|tpu|npu|vpu|mig-|neuron|gaudi|ascend|fpga" (splitList "/" $resource | last)) -}}
{{- fail (printf "%s: a worker's device comes from resourceName alone; set resourceName: %s" $at $resource) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $part "requests") (hasKey ($class.limits | default dict) $resource) -}}
{{- $most := get $class.limits $resource -}}
{{- if gt $amount (include "inference-operator.quantity" $most | float64) -}}
{{- fail (printf "%s is %v, above limits.%s, which is %v; lower it, or raise the limit" $at $text $resource $most) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "inference-operator.checkWatts" -}}
{{- $where := index . 0 -}}{{- $class := index . 1 -}}
{{- $share := "write the watts that one worker's share draws" -}}
{{- if le (float64 $class.wattsBusy) 0.0 -}}
{{- fail (printf "%s.wattsBusy is %v; %s, above 0: auto would prefer a class that costs no energy to all others" $where $class.wattsBusy $share) -}}
{{- end -}}
{{- if gt (float64 ($class.wattsIdle | default 0)) (float64 $class.wattsBusy) -}}
{{- fail (printf "%s.wattsIdle is %v, above wattsBusy, which is %v; %s when idle" $where $class.wattsIdle $class.wattsBusy $share) -}}
{{- end -}}
{{- end -}}

{{- define "inference-operator.checkProvisioning" -}}
{{- $where := printf "%s.provisioning" (index . 0) -}}{{- $class := index . 1 -}}
{{- with $class.provisioning -}}
{{- $grows := . -}}
{{- $asked := deepCopy ($class.requests | default dict) -}}
{{- with $class.resourceName -}}{{- $_ := set $asked . "1" -}}{{- end -}}
{{- range $resource, $amount := $asked -}}
{{- $there := get $grows.allocatable $resource | default "0" -}}
{{- if gt (include "inference-operator.quantity" $amount | float64) (include "inference-operator.quantity" $there | float64) -}}
{{- fail (printf "%s.allocatable.%s is %v, and a worker asks for %v; write what a new node has for pods" $where $resource $there $amount) -}}
{{- end -}}
{{- end -}}
{{- $labels := $grows.labels | default dict -}}
{{- range $key, $value := $class.nodeSelector -}}
{{- if and (hasKey $labels $key) (ne (get $labels $key) $value) -}}
{{- fail (printf "%s.labels: %s=%s is not what nodeSelector asks for; leave it out, or write %s" $where $key (get $labels $key) $value) -}}
{{- end -}}
{{- end -}}
{{- range $taint := $grows.taints -}}
{{- $tolerated := eq $taint.effect "PreferNoSchedule" -}}
{{- range $class.tolerations -}}
{{- $covers := and (has (.effect | default $taint.effect) (list $taint.effect)) (has .key (list "" $taint.key)) -}}
{{- if and $covers (or (ne (.operator | default "Exists") "Equal") (eq (.value | default "") ($taint.value | default ""))) -}}
{{- $tolerated = true -}}
{{- end -}}
{{- end -}}
{{- if not $tolerated -}}
{{- fail (printf "%s.taints: workers don't tolerate %s; add it to the class's tolerations" $where $taint.key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The number that a quantity stands for: 0.5 for 500m. */ -}}
{{- define "inference-operator.quantity" -}}
{{- $text := toString . | trimPrefix "+" -}}
{{- $number := regexFind "^([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?" $text -}}
{{- $factors := dict "" 1.0 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- mulf (float64 $number) (get $factors (trimPrefix $number $text)) -}}
{{- end -}}
