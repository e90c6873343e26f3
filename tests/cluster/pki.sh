#!/usr/bin/env bash
# pki.sh RUN_DIR: makes the cluster's certificates (RUN_DIR/pki) and one kubeconfig for each that talks to the API server.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
use_run_dir "${1:?usage: pki.sh RUN_DIR}"
mkdir -p "$RUN_DIR/pki"
chmod 700 "$RUN_DIR/pki"
cd "$RUN_DIR/pki"

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

# certificate NAME SUBJECT ALTERNATIVE_NAMES
certificate() {
  key "$1"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -days 30 -out "$1.crt" 2> /dev/null \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$3")
  rm "$1.csr"
}

# client NAME SUBJECT: a certificate, and a self-contained kubeconfig that uses it.
client() {
  certificate "$1" "$2" "${3:-DNS:$1}"
  (
    umask 077
    cat > "$RUN_DIR/$1.kubeconfig" << YAML
apiVersion: v1
kind: Config
clusters:
- name: ckb-probe
  cluster: {server: "$API_URL", certificate-authority-data: $(base64 -w0 ca.crt)}
users:
- name: $1
  user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}
contexts:
- name: ckb-probe
  context: {cluster: ckb-probe, user: $1}
current-context: ckb-probe
YAML
  )
}

key ca
openssl req -x509 -new -key ca.key -subj /CN=ckb-probe-cluster -days 30 -out ca.crt
openssl genrsa -out service-account.key 2048 2> /dev/null
openssl rsa -in service-account.key -pubout -out service-account.pub 2> /dev/null

certificate apiserver /CN=kube-apiserver \
  "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1,IP:$SERVICE_IP,IP:$NODE_IP"
client admin /O=system:masters/CN=admin
client controller-manager /CN=system:kube-controller-manager
client scheduler /CN=system:kube-scheduler
client proxy /CN=system:kube-proxy
client kubelet "/O=system:nodes/CN=system:node:$NODE" "DNS:$NODE,DNS:localhost,IP:127.0.0.1,IP:$NODE_IP"
