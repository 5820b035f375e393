{{/* The configuration of the second kube-scheduler, which `helm test` reads too. */}}

{{/* Writes it, by the same command as for the cluster's kube-scheduler. */}}
{{- define "thalweg.secondConfig" -}}
- name: scheduler-config
  {{- include "thalweg.commandContainer" . | nindent 2 }}
  args:
    - scheduler-config
    - --beside
    - --output=/config/scheduler.yaml
    - --url=https://{{ include "thalweg.extenderHost" . }}:8443/extender
    - --ca-path=/etc/thalweg/client/ca.crt
    - --client-cert-file=/etc/thalweg/client/tls.crt
    - --client-key-file=/etc/thalweg/client/tls.key
    - --kubeconfig-path=
    - --lease={{ .Release.Namespace }}/{{ include "thalweg.fullname" . }}-kube-scheduler
    - --scheduler-name={{ .Values.extender.schedulerName }}
    - --ask-for={{ .Values.extender.askFor }}
    - --node-sample={{ .Values.extender.nodeSample }}
    {{- if include "thalweg.ignorable" . }}
    - --ignorable
    {{- end }}
  volumeMounts:
    - {name: config, mountPath: /config}
    - {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "thalweg.secondMounts" -}}
- {name: config, mountPath: /config, readOnly: true}
- {name: client, mountPath: /etc/thalweg/client, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "thalweg.secondVolumes" -}}
- name: config
  emptyDir: {sizeLimit: 16Mi}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
# The keys are named, so the pod starts when the certificates are there.
- name: client
  secret:
    secretName: {{ include "thalweg.clientSecret" . }}
    defaultMode: 0440
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}, {key: ca.crt, path: ca.crt}]
{{- end -}}
