{{- define "lockstep.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "lockstep.operator" -}}{{ include "lockstep.fullname" . }}-operator{{- end -}}

{{- define "lockstep.selector" -}}
app.kubernetes.io/name: {{ if .Values.nameOverride }}{{ .Values.nameOverride }}-operator{{ else }}lockstep-operator{{ end }}
app.kubernetes.io/part-of: lockstep
{{- end -}}

{{- define "lockstep.labels" -}}
{{ include "lockstep.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "lockstep.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ default (include "lockstep.operator" .) .Values.serviceAccount.name }}
{{- else -}}{{ required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- /* repository[:tag][@digest] of (dict "image" IMAGE "tag" DEFAULT) */ -}}
{{- define "lockstep.image" -}}
{{ .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .tag .image.tag }}{{ end }}
{{- end -}}

{{- define "lockstep.jobImage" -}}
{{- $image := ternary .Values.jobs.image .Values.image (ne .Values.jobs.image.repository "") -}}
{{ include "lockstep.image" (dict "image" $image "tag" .Chart.AppVersion) }}
{{- end -}}

{{- /* A binding of (dict "root" $ "kind" KIND "name" NAME) to the operator's service account. */ -}}
{{- define "lockstep.binding" -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ include "lockstep.serviceAccount" .root }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- /* The rules of the first document of (dict "root" $ "file" FILE), which is one of manifests/operator. */ -}}
{{- define "lockstep.rules" -}}
{{ (index (splitList "\n---\n" (.root.Files.Get .file)) 0 | fromYaml).rules | toYaml }}
{{- end -}}
