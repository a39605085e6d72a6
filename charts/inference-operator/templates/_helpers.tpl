{{- define "inference-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "inference-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "inference-operator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "inference-operator.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "inference-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "inference-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "inference-operator.labels" -}}
{{- include "inference-operator.labelled" (list . (include "inference-operator.selectorLabels" .) dict) -}}
{{- end -}}

{{- /* All labels of an object; takes a list of the root, the labels that select it, and others. What selects is nobody else's. */ -}}
{{- define "inference-operator.labelled" -}}
{{- $root := index . 0 -}}
{{- toYaml (mergeOverwrite (dict) $root.Values.commonLabels (index . 2) (dict
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/part-of" "inference-operator"
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63)
) (index . 1 | fromYaml)) -}}
{{- end -}}

{{- define "inference-operator.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "inference-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "inference-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* An image reference from {registry, repository, tag, digest}; takes a list of the root, the image and the default tag. */ -}}
{{- define "inference-operator.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- $registry := default $image.registry ($root.Values.global | default dict).imageRegistry -}}
{{- $name := list $registry $image.repository | compact | join "/" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default (index . 2) $image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* The Secrets by which the chart's own pods pull their images. */ -}}
{{- define "inference-operator.imagePullSecrets" -}}
{{- with concat (default list (.Values.global | default dict).imagePullSecrets) .Values.imagePullSecrets | uniq -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /* The labels of every worker, which no job can change. */ -}}
{{- define "inference-operator.workerLabels" -}}
app.kubernetes.io/name: inference-worker
app.kubernetes.io/managed-by: inference-operator
{{- end -}}

{{- /* A selector of these namespaces; of all where there are none. */ -}}
{{- define "inference-operator.watched" -}}
{{- if . -}}
namespaceSelector:
  matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- else -}}
namespaceSelector: {}
{{- end -}}
{{- end -}}

{{- /* What the operator does in each namespace that it watches. */ -}}
{{- define "inference-operator.namespacedRules" -}}
# Jobs and models are the users': the operator reads them, writes their status, and deletes a job when its TTL is up.
- apiGroups: [inference.myorg]
  resources: [inferencejobs]
  verbs: [list, watch, delete]
- apiGroups: [inference.myorg]
  resources: [inferencemodels]
  verbs: [list, watch]
- apiGroups: [inference.myorg]
  resources: [inferencejobs/status, inferencemodels/status]
  verbs: [patch]
# All pods are read, since free capacity is what they leave over.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
# Who is sent requests: the operator writes it, so that a dead worker leaves at once. What Kubernetes' own controllers wrote for a
# Service of an older version goes.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, patch, delete]
# OpenShift asks for it of whoever writes addresses of pods; elsewhere it is no resource.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices/restricted]
  verbs: [create]
- apiGroups: [""]
  resources: [endpoints]
  verbs: [get, delete]
# Claims say how many nodes or pods may mount them at a time, and whether they wait for an ended pod to go.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch]
# All HPAs are read, since one of somebody else that scales a job is respected.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
# A drain takes one worker of a service at a time.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- if .Values.kueue.enabled }}
# Batches in queues: the spec is the operator's, and of the status what the controller of a job has to write.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}
{{- if .Values.gateway.api.enabled }}
# Routes of services, for gateways of others. Gateways themselves are none of the operator's business.
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes, grpcroutes]
  verbs: [get, list, create, patch, delete]
{{- if .Values.gateway.endpointPicker.enabled }}
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [get, list, create, patch, delete]
{{- end }}
{{- end }}
{{- end -}}

{{- /* The names of a class's execution providers, with commas. */ -}}
{{- define "inference-operator.providers" -}}
{{- $names := list -}}
{{- range .executionProviders -}}
{{- if kindIs "string" . -}}{{- $names = append $names . -}}{{- else -}}{{- $names = append $names .name -}}{{- end -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{- define "inference-operator.customMetrics" -}}
{{- printf "%s-custom-metrics" (include "inference-operator.fullname" . | trunc 48 | trimSuffix "-") -}}
{{- end -}}

{{- define "inference-operator.metricsApi" -}}
{{- printf "%s-metrics-api" (include "inference-operator.fullname" . | trunc 48 | trimSuffix "-") -}}
{{- end -}}

{{- define "inference-operator.taskKey" -}}
{{- (include "inference-operator.settings" . | fromYaml).taskKeyName -}}
{{- end -}}

{{- define "inference-operator.lease" -}}
{{- (include "inference-operator.settings" . | fromYaml).leaseName -}}
{{- end -}}

{{- define "inference-operator.httpPort" -}}
{{- (include "inference-operator.settings" . | fromYaml).httpPort -}}
{{- end -}}

{{- /* Where `helm test` and the notes have their job. */ -}}
{{- define "inference-operator.testNamespace" -}}
{{- default (first (append .Values.watchNamespaces "default")) .Values.test.namespace -}}
{{- end -}}

{{- define "inference-operator.installCheck" -}}
{{- printf "%s-install-check" (include "inference-operator.fullname" . | trunc 49 | trimSuffix "-") -}}
{{- end -}}

{{- define "inference-operator.kedaScaler" -}}
{{- printf "%s-keda-scaler" (include "inference-operator.fullname" . | trunc 51 | trimSuffix "-") -}}
{{- end -}}

{{- define "inference-operator.authority" -}}
{{- printf "%s-authority" (include "inference-operator.fullname" . | trunc 53 | trimSuffix "-") -}}
{{- end -}}

{{- define "inference-operator.nodeCache" -}}
{{- printf "%s-node-cache" (include "inference-operator.fullname" . | trunc 48 | trimSuffix "-") -}}
{{- end -}}

{{- define "inference-operator.nodeCacheKey" -}}
{{- printf "%s-key" (include "inference-operator.nodeCache" .) -}}
{{- end -}}

{{- define "inference-operator.nodeCacheSelectorLabels" -}}
app.kubernetes.io/name: {{ include "inference-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node-cache
{{- end -}}

{{- define "inference-operator.nodeCacheLabels" -}}
{{- include "inference-operator.labelled" (list . (include "inference-operator.nodeCacheSelectorLabels" .) dict) -}}
{{- end -}}

{{- /* A quantity of whole bytes as a number. */ -}}
{{- define "inference-operator.bytes" -}}
{{- $factor := int64 1 -}}{{- $text := toString . -}}
{{- range $suffix, $bytes := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- if hasSuffix $suffix $text -}}{{- $factor = int64 $bytes -}}{{- end -}}
{{- end -}}
{{- mul $factor (regexFind "^[0-9]+" $text | int64) -}}
{{- end -}}

{{- define "inference-operator.gateway" -}}
{{- printf "%s-gateway" (include "inference-operator.fullname" . | trunc 47 | trimSuffix "-") -}}
{{- end -}}

{{- /* The Service by which gateways of others reach every replica of the operator; in namespaces with pools, too. */ -}}
{{- define "inference-operator.endpointPicker" -}}
{{- printf "%s-endpoint-picker" (include "inference-operator.fullname" . | trunc 41 | trimSuffix "-") -}}
{{- end -}}

{{- /* The Service by which Envoys reach every replica of the operator. */ -}}
{{- define "inference-operator.gatewayControl" -}}
{{- printf "%s-control" (include "inference-operator.gateway" .) -}}
{{- end -}}

{{- define "inference-operator.gatewaySelectorLabels" -}}
app.kubernetes.io/name: {{ include "inference-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "inference-operator.gatewayLabels" -}}
{{- include "inference-operator.labelled" (list . (include "inference-operator.gatewaySelectorLabels" .) dict) -}}
{{- end -}}

{{- /* What an Envoy starts with. */ -}}
{{- define "inference-operator.tenants" -}}
{{- toYaml (dict
  "enabled" .enabled
  "unknown" .unknown
  "certificateFolder" (ternary "/etc/inference-gateway-callers" "" (ne .certificates.caSecretName ""))
  "keyFile" (ternary "/etc/inference-gateway-keys/keys" "" (ne .keys.secretName ""))
  "tokens" (dict
    "issuer" .tokens.issuer
    "audiences" .tokens.audiences
    "claim" .tokens.claim
    "keySetFile" (ternary "/etc/inference-operator-issuer/jwks.json" "" (ne .tokens.keySetConfigMap ""))
    "forward" .tokens.forward
  )
  "list" .list
) -}}
{{- end -}}

{{- define "inference-operator.gatewayBootstrap" -}}
{{- $host := printf "%s.%s.svc" (include "inference-operator.gatewayControl" .) (include "inference-operator.namespace" .) -}}
{{- .Files.Get "files/envoy.yaml" | replace "OPERATOR_ADDRESS" $host | replace "OPERATOR_PORT" (.Values.gateway.controlPort | toString) | replace "ADMIN_ADDRESS" "127.0.0.1" | replace "METRICS_ADDRESS" "0.0.0.0" | replace "9902" (.Values.gateway.metricsPort | toString) -}}
{{- end -}}

{{- /* Helm drops values that are null. The settings need them: an id that is not there has a default. */ -}}
{{- define "inference-operator.workerSecurity" -}}
{{- $given := default dict .Values.worker.securityContext -}}
{{- $security := dict "userNamespaces" .Values.worker.userNamespaces "supplementalGroups" (default list $given.supplementalGroups) -}}
{{- range $id := list "runAsUser" "runAsGroup" "fsGroup" -}}
{{- $_ := set $security $id (ternary (get $given $id) nil (hasKey $given $id)) -}}
{{- end -}}
{{- toYaml $security -}}
{{- end -}}

{{- /* The names of the Secrets by which workers pull their images. */ -}}
{{- define "inference-operator.workerPullSecrets" -}}
{{- $names := list -}}
{{- range concat (default list (.Values.global | default dict).imagePullSecrets) .Values.worker.imagePullSecrets -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $names | uniq | toYaml -}}
{{- end -}}

{{- define "inference-operator.settings" -}}
{{- $settings := dict
  "workerImage" (include "inference-operator.image" (list . .Values.worker.image .Chart.AppVersion))
  "imagePullPolicy" .Values.worker.image.pullPolicy
  "imagePullSecrets" (include "inference-operator.workerPullSecrets" . | fromYamlArray)
  "workerSecurity" (include "inference-operator.workerSecurity" . | fromYaml)
  "backends" .Values.backends
  "accelerators" .Values.accelerators
  "cost" .Values.cost
  "metering" .Values.metering
  "policy" (dict "path" (ternary "/etc/inference-operator-policy/policy.onnx" "" (ne .Values.policy.configMap "")))
  "namespaces" .Values.watchNamespaces
  "readAllPods" .Values.rbac.readAllPods
  "httpPort" 8080
  "leaseName" "inference-operator"
  "taskKeyName" (printf "%s-task-key" (include "inference-operator.fullname" . | trunc 54 | trimSuffix "-"))
  "logLevel" .Values.logLevel
  "logFormat" .Values.logFormat
  "autoscaling" .Values.autoscaling
  "customMetrics" (dict
    "enabled" .Values.customMetrics.enabled
    "port" .Values.customMetrics.port
    "service" (include "inference-operator.metricsApi" .)
    "secret" (include "inference-operator.customMetrics" .)
    "issue" (eq .Values.customMetrics.certificate "selfSigned")
    "owner" (ternary (include "inference-operator.customMetrics" .) "" .Values.rbac.create)
  )
  "kedaScaler" (dict
    "enabled" .Values.kedaScaler.enabled
    "port" .Values.kedaScaler.port
    "service" (include "inference-operator.kedaScaler" .)
    "tls" .Values.kedaScaler.tls
    "clientCaFile" (ternary "/etc/inference-operator-keda/ca.crt" "" (ne .Values.kedaScaler.clientCASecret ""))
  )
  "mutualTls" (dict
    "enabled" .Values.mutualTLS.enabled
    "port" .Values.mutualTLS.port
    "service" (include "inference-operator.authority" .)
    "namespace" (include "inference-operator.namespace" .)
    "account" (include "inference-operator.serviceAccountName" .)
    "secret" (include "inference-operator.authority" .)
    "trustDomain" .Values.mutualTLS.trustDomain
  )
  "nodeCache" (dict
    "enabled" .Values.nodeCache.enabled
    "service" (include "inference-operator.nodeCache" .)
    "namespace" (include "inference-operator.namespace" .)
    "podLabels" (include "inference-operator.nodeCacheSelectorLabels" . | fromYaml)
    "keyName" (include "inference-operator.nodeCacheKey" .)
    "prefetch" (and .Values.nodeCache.enabled .Values.nodeCache.prefetch)
  )
  "kueue" (dict "enabled" .Values.kueue.enabled)
  "gateway" (dict
    "enabled" .Values.gateway.enabled
    "port" .Values.gateway.controlPort
    "listenerPort" .Values.gateway.port
    "requestBytes" (int64 .Values.gateway.requestBytes)
    "heldRequests" (int .Values.gateway.heldRequests)
    "heldBytes" (int64 .Values.gateway.heldBytes)
    "holdSeconds" .Values.gateway.holdSeconds
    "tracing" .Values.gateway.tracing
    "tlsFolder" (ternary "/etc/inference-gateway-tls" "" (ne .Values.gateway.tls.secretName ""))
    "envoys" (int .Values.gateway.replicas)
    "tenants" (include "inference-operator.tenants" .Values.gateway.tenants | fromYaml)
    "audit" .Values.gateway.audit
    "payloads" (dict
      "url" .Values.gateway.payloads.url
      "percent" .Values.gateway.payloads.percent
      "maxBytes" (int .Values.gateway.payloads.maxBytes)
      "namespaces" .Values.gateway.payloads.namespaces
    )
    "api" .Values.gateway.api
    "endpointPicker" (merge (dict "service" (ternary (include "inference-operator.endpointPicker" .) "" .Values.gateway.endpointPicker.enabled)) .Values.gateway.endpointPicker)
  )
-}}
{{- mergeOverwrite $settings .Values.settings | toYaml -}}
{{- end -}}
