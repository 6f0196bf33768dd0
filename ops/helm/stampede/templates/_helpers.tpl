{{- define "stampede.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "stampede.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "stampede.labels" -}}
{{ include "stampede.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "stampede.image" -}}
{{- $repository := required "image.repository is required: where your repository publishes its image, ghcr.io/OWNER/REPOSITORY" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The secrets of a component, as YAML. The service does not get the URL of the role that migrates. */}}
{{- define "stampede.secrets" -}}
{{- $secrets := dict -}}
{{- range $name, $from := .root.Values.secrets -}}
{{- if and $from (or (eq $.component "migrate") (ne $name "MIGRATION_DATABASE_URL")) -}}
{{- $_ := set $secrets $name $from -}}
{{- end -}}
{{- end -}}
{{ toYaml $secrets }}
{{- end -}}

{{/* A pod of a component: what service and migration share. Arguments: root, component, container (its own fields). */}}
{{- define "stampede.pod" -}}
{{- $root := .root -}}
{{- $secrets := include "stampede.secrets" . | fromYaml -}}
{{- $folder := "/run/secrets/stampede" -}}
{{- $auth := required "env.AUTH is required: jwt, or none where only trusted pods reach the port" $root.Values.env.AUTH -}}
{{- if not $secrets.DATABASE_URL }}{{ fail "secrets.DATABASE_URL is required" }}{{ end -}}
{{- if and (eq $auth "jwt") (not $secrets.TICKET_SECRETS) }}{{ fail "secrets.TICKET_SECRETS is required with AUTH=jwt: pods accept the tickets of each other" }}{{ end -}}
metadata:
  labels:
    {{- include "stampede.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  automountServiceAccountToken: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
    # The group of the files below.
    fsGroup: 1000
    seccompProfile:
      type: RuntimeDefault
  {{- with $root.Values.pod }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .fields }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "stampede.image" $root }}
      env:
        {{- range $name, $value := $root.Values.env }}
        {{- if $value }}
        - name: {{ $name }}
          value: {{ $value | quote }}
        {{- end }}
        {{- end }}
        {{- if not $secrets.REDIS_URL }}
        - name: REDIS_URL
          value: none
        {{- end }}
        {{- range $name, $from := $secrets }}
        - name: {{ $name }}_FILE
          value: {{ $folder }}/{{ $name }}
        {{- end }}
        {{- if $root.Values.caCertificate }}
        - name: NODE_EXTRA_CA_CERTS
          value: {{ $folder }}/ca.crt
        {{- end }}
        {{- with .env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- toYaml .container | nindent 6 }}
      resources:
        {{- toYaml $root.Values.resources | nindent 8 }}
      # As in docker-compose.yml.
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: secrets
          mountPath: {{ $folder }}
          readOnly: true
  volumes:
    - name: secrets
      projected:
        defaultMode: 288 # 0440
        sources:
          {{- range $name, $from := $secrets }}
          - secret:
              name: {{ $from.name }}
              items:
                - key: {{ $from.key }}
                  path: {{ $name }}
          {{- end }}
          {{- with $root.Values.caCertificate }}
          - secret:
              name: {{ .name }}
              items:
                - key: {{ .key }}
                  path: ca.crt
          {{- end }}
{{- end -}}
