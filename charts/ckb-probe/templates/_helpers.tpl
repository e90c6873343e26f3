{{/* Leaves room for the longest suffix in 63 characters. */}}
{{- define "ckb-probe.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ckb-probe.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* The labels a selector may use: they never change within a release, and the operator puts the name on every agent. */}}
{{- define "ckb-probe.selectorLabels" -}}
app.kubernetes.io/name: ckb-probe
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ckb-probe.labels" -}}
{{ include "ckb-probe.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The environment of a program whose metrics are protected. */}}
{{- define "ckb-probe.metricsEnvironment" -}}
{{- if eq (include "ckb-probe.secureMetrics" .) "true" }}
- name: METRICS_SECURE
  value: "true"
- name: METRICS_SERVER_NAME
  value: {{ include "ckb-probe.metricsServerName" . | quote }}
{{- if .Values.metrics.tls.secretName }}
- name: METRICS_CERTIFICATE
  value: /etc/ckb-probe-metrics
{{- end }}
{{- end }}
{{- end -}}

{{- define "ckb-probe.metricsServerName" -}}
{{- .Values.metrics.tls.serverName | default (printf "%s-metrics.%s.svc" (include "ckb-probe.fullname" .) .Release.Namespace) -}}
{{- end -}}

{{/* Whether there is a Secret to be mounted: not empty then. */}}
{{- define "ckb-probe.metricsSecret" -}}
{{- if eq (include "ckb-probe.secureMetrics" .) "true" }}{{ .Values.metrics.tls.secretName }}{{ end -}}
{{- end -}}

{{- /* The port of profiles.push.url: the one that it names, or that of its scheme. */ -}}
{{- define "ckb-probe.pushPort" -}}
{{- $url := urlParse .Values.profiles.push.url -}}
{{- $named := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $named | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end }}

{{- /* The ports of all that traces go to, likewise, separated by commas: nothing where they go nowhere. */ -}}
{{- define "ckb-probe.otlpPorts" -}}
{{- $endpoints := compact (list .Values.otlp.endpoint) -}}
{{- range .Values.otlp.exporters }}{{ $endpoints = append $endpoints .endpoint }}{{ end -}}
{{- $ports := list -}}
{{- range $endpoints -}}
{{- $url := urlParse . -}}
{{- $named := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $ports = append $ports ($named | default (ternary "443" "80" (eq $url.scheme "https"))) -}}
{{- end -}}
{{- $ports | uniq | join "," -}}
{{- end }}

{{- /* Exporters, and the namespaces that may name each, as the operator reads it: archive=*;team-a=a,b */ -}}
{{- define "ckb-probe.exporters" -}}
{{- $all := list -}}
{{- range $name, $exporter := .Values.otlp.exporters -}}
{{- $all = append $all (printf "%s=%s" $name (join "," $exporter.namespaces)) -}}
{{- end -}}
{{- join ";" $all -}}
{{- end }}

{{/* Every kind of probe that there is, as crds/src/kinds.rs has them. */}}
{{- define "ckb-probe.everyKind" -}}
rocksdb,functions,usdt,kernelFunctions,syscalls,blockIo,tcp,processes,chain,profile
{{- end -}}

{{/* Whether metrics are for those alone who may read them: true or false. */}}
{{- define "ckb-probe.secureMetrics" -}}
{{- if kindIs "bool" .Values.metrics.secure }}{{ .Values.metrics.secure }}{{ else }}{{ .Values.multiTenant }}{{ end -}}
{{- end -}}

{{/* The kinds of probes that are not admitted, separated by commas: nothing where all are. */}}
{{- define "ckb-probe.refusedKinds" -}}
{{- $every := include "ckb-probe.everyKind" . | splitList "," -}}
{{- $refused := list -}}
{{- if .Values.kinds.admitted -}}
{{- range $every }}{{ if not (has . $.Values.kinds.admitted) }}{{ $refused = append $refused . }}{{ end }}{{ end -}}
{{- else if .Values.multiTenant -}}
{{- $refused = list "kernelFunctions" "blockIo" -}}
{{- end -}}
{{- join "," $refused -}}
{{- end -}}

{{/* Those that are. */}}
{{- define "ckb-probe.admittedKinds" -}}
{{- $refused := include "ckb-probe.refusedKinds" . | splitList "," -}}
{{- $admitted := list -}}
{{- range include "ckb-probe.everyKind" . | splitList "," }}{{ if not (has . $refused) }}{{ $admitted = append $admitted . }}{{ end }}{{ end -}}
{{- join "," $admitted -}}
{{- end -}}
