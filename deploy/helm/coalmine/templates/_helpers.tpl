{{- define "coalmine.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "coalmine.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "coalmine.labels" -}}
{{ include "coalmine.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "coalmine.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Names of the ConfigMaps with canary files, as a JSON list: the chart's own, the named, and those with the label. */}}
{{- define "coalmine.canaries" -}}
{{- $names := list -}}
{{- if .Values.canaries.files -}}{{- $names = append $names (printf "%s-files" (include "coalmine.name" .)) -}}{{- end -}}
{{- $names = concat $names .Values.canaries.configMaps -}}
{{- if .Values.canaries.label -}}
{{- range (lookup "v1" "ConfigMap" .Release.Namespace "").items -}}
{{- if hasKey (.metadata.labels | default dict) $.Values.canaries.label -}}{{- $names = append $names .metadata.name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{ $names | uniq | toJson }}
{{- end -}}

{{/* What all pods have: whose they are, and that they can change nothing. */}}
{{- define "coalmine.pod" -}}
serviceAccountName: {{ include "coalmine.name" . }}
automountServiceAccountToken: false
enableServiceLinks: false # else the Service sets COALMINE_PORT and others, which are no settings
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "coalmine.container" -}}
image: {{ include "coalmine.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "coalmine.mounts" -}}
- {name: secrets, mountPath: /run/secrets/coalmine, readOnly: true}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "coalmine.volumes" -}}
- name: secrets
  secret: {secretName: {{ .Values.secret }}, defaultMode: 0440}
- name: data
  emptyDir: {sizeLimit: 64Mi}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- end -}}

{{/* The Job that migrates runs before everything else, and needs the account and the settings by then. */}}
{{- define "coalmine.early" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation
{{- end -}}

{{/* Versions of the looked-up ConfigMaps with canary files, so that pods are replaced where one changed. */}}
{{- define "coalmine.versions" -}}
{{- $versions := dict -}}
{{- range include "coalmine.canaries" . | fromJsonArray -}}
{{- $found := lookup "v1" "ConfigMap" $.Release.Namespace . -}}
{{- if $found -}}{{- $_ := set $versions . ($found.data | default dict) -}}{{- end -}}
{{- end -}}
{{ toJson $versions }}
{{- end -}}
