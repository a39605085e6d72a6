{{- /* Whether an object of monitoring.coreos.com is rendered, by its kind; fails where metrics.renderMode says so. Takes (root, kind). */ -}}
{{- define "inference-operator.monitors" -}}
{{- $root := index . 0 -}}
{{- $known := $root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 1)) -}}
{{- $mode := $root.Values.metrics.renderMode -}}
{{- if and (eq $mode "FailIfMissing") (not $known) -}}
{{- fail (printf "the cluster has no %s of monitoring.coreos.com/v1: install the Prometheus operator's CRDs, or set metrics.renderMode to SkipIfMissing" (index . 1)) -}}
{{- end -}}
{{- if or $known (ne $mode "SkipIfMissing") -}}true{{- end -}}
{{- end -}}

{{- /* metadata of an object for Prometheus or Grafana. Takes (root, values, suffix). */ -}}
{{- define "inference-operator.monitorMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "inference-operator.fullname" $root }}{{ index . 2 }}
namespace: {{ (index . 1).namespace | default (include "inference-operator.namespace" $root) }}
labels:
  {{- include "inference-operator.labels" $root | nindent 2 }}
  {{- with (index . 1).additionalLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* What an endpoint says beside its port. */ -}}
{{- define "inference-operator.endpoint" -}}
path: /metrics
honorLabels: {{ .honorLabels }}
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The groups of alerts, without those that are disabled. */ -}}
{{- define "inference-operator.alerts" -}}
{{- $values := .Values.prometheusRule -}}
{{- $text := .Files.Get "files/alerts.yaml" | replace "RUNBOOKS" $values.runbooks | replace "> 0.025" (printf "> %v" (divf $values.latencyMilliseconds 1000)) -}}
{{- $rules := list -}}
{{- range $rule := (index (fromYaml $text).groups 0).rules -}}
{{- if not (has $rule.alert $values.disabled) -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
groups:
  {{- with $rules }}
  - name: inference
    rules:
      {{- toYaml . | nindent 6 }}
  {{- end }}
  {{- with $values.rules }}
  - name: inference-additional
    rules:
      {{- toYaml . | nindent 6 }}
  {{- end }}
{{- end -}}
