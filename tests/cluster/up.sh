#!/usr/bin/env bash
# up.sh [--api] [RUN_DIR]: brings up a Kubernetes cluster of one node, node0, made of plain processes on this machine.
# Nothing to do when it is up; when only half of it is, that half is taken down first. Needs root.
#
# --api: etcd and the API server alone, for who makes up nodes and pods: none of them runs, and nothing looks after them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
whole=true
[[ ${1:-} != --api ]] || {
  whole=false
  shift
}
use_run_dir "${1:-}"
need_root up.sh

PROCESSES=(etcd apiserver)
! "$whole" || PROCESSES+=(controller-manager scheduler containerd kubelet proxy)
PORTS=(6443 12379 12380 10248 10249 10250 10256 10257 10259)

main() {
  lock
  refuse_other_run_dir
  if is_up; then
    step "the cluster is up already: export KUBECONFIG=$RUN_DIR/admin.kubeconfig"
    return
  fi
  [[ ! -e $STATE && -z $(our_pids) ]] || {
    step "a part of an earlier cluster is still here: taking it down"
    "$HERE/down.sh" "$RUN_DIR"
  }
  check_tools
  check_machine_is_free
  prepare_folders
  step "making certificates"
  "$HERE/pki.sh" "$RUN_DIR"
  ip address add "$NODE_IP/32" dev lo
  start_api
  ! "$whole" || {
    start_controllers
    start_container_runtime
    start_node
  }
  step "up: export KUBECONFIG=$RUN_DIR/admin.kubeconfig"
}

is_up() {
  local name
  for name in "${PROCESSES[@]}"; do
    running "$name" || return 1
  done
  api_ready && { ! "$whole" || node_ready; }
}

check_tools() {
  local tool
  for tool in etcd containerd ctr runc iptables iptables-save conntrack ip openssl gcc python3 \
    "$KUBERNETES_BIN"/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy,kubectl}; do
    command -v "$tool" > /dev/null || die "$tool is missing: run scripts/setup.sh cluster"
  done
  [[ -x /usr/lib/cni/bridge ]] || die "the CNI plug-ins are missing: run scripts/setup.sh cluster"
}

# down.sh removes every KUBE-* and CNI-* chain and every kubepods cgroup: make sure beforehand that none is another's.
check_machine_is_free() {
  local port taken
  for port in "${PORTS[@]}"; do
    taken=$(ss -Hltnp "sport = :$port")
    [[ -z $taken ]] || die "port $port is taken: $taken"
  done
  [[ -z $(our_chains iptables)$(our_chains ip6tables)$(kubepods_cgroups) ]] ||
    die "another Kubernetes or CNI network is on this machine (KUBE-* or CNI-* chains, or kubepods cgroups)"
}

# Settings of the kernel that kubelet, kube-proxy and the bridge plug-in change: noted, so that down.sh restores them.
SYSCTLS=(
  vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes
  net/ipv4/ip_forward net/ipv4/conf/all/route_localnet net/ipv6/conf/all/forwarding
)

prepare_folders() {
  rm -rf "$RUN_DIR"/{log,pki,config,kubectl-cache} "$RUN_DIR"/*.{pid,kubeconfig}
  rm -rf "$RUN_DIR/static"
  mkdir -p "$RUN_DIR"/{log/pods,config/cni,static} "$STATE" "$SOCKETS"
  local setting
  for setting in "${SYSCTLS[@]}"; do
    [[ ! -e /proc/sys/$setting ]] || echo "$setting $(< "/proc/sys/$setting")"
  done > "$STATE/sysctls"
  echo "$RUN_DIR" > "$STATE/run-dir"
}

start_api() {
  step "starting etcd and the API server"
  start etcd etcd --data-dir "$STATE/etcd" --unsafe-no-fsync \
    --listen-client-urls "$ETCD_URL" --advertise-client-urls "$ETCD_URL" \
    --listen-peer-urls "$ETCD_PEER_URL" --initial-advertise-peer-urls "$ETCD_PEER_URL" \
    --initial-cluster "default=$ETCD_PEER_URL"
  start_apiserver
}

start_controllers() {
  step "starting the controller manager and the scheduler"
  start controller-manager "$KUBERNETES_BIN/kube-controller-manager" --bind-address 127.0.0.1 --leader-elect=false \
    --{kubeconfig,authentication-kubeconfig,authorization-kubeconfig}="$RUN_DIR/controller-manager.kubeconfig" \
    --flex-volume-plugin-dir "$STATE/volume-plugins" --use-service-account-credentials --root-ca-file "$RUN_DIR/pki/ca.crt" \
    --service-account-private-key-file "$RUN_DIR/pki/service-account.key"
  start scheduler "$KUBERNETES_BIN/kube-scheduler" --bind-address 127.0.0.1 --leader-elect=false \
    --{kubeconfig,authentication-kubeconfig,authorization-kubeconfig}="$RUN_DIR/scheduler.kubeconfig"
}

start_container_runtime() {
  step "starting containerd"
  # restrict_oom_score_adj: a machine without CAP_SYS_RESOURCE may not lower it, and runc would give up.
  # netns_mounts_under_state_dir, Root, opt: nothing in folders that other container runtimes share.
  cat > "$RUN_DIR/config/containerd.toml" << TOML
version = 2
root = "$STATE/containerd"
state = "$SOCKETS/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "$CONTAINERD_SOCKET"
[plugins."io.containerd.internal.v1.opt"]
  path = "$STATE/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.local/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$RUN_DIR/config/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "$SOCKETS/runc"
TOML
  cat > "$RUN_DIR/config/cni/10-ckb-probe.conflist" << JSON
{
  "cniVersion": "0.4.0",
  "name": "ckb-probe",
  "plugins": [
    {
      "type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "$STATE/ipam",
        "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
JSON
  start containerd containerd --config "$RUN_DIR/config/containerd.toml"
  wait_for 30 containerd_answers || failed containerd "containerd does not answer"
  gcc -O2 -static -o "$RUN_DIR/config/pause" "$HERE/pause.c"
  "$HERE/oci_archive.py" "$RUN_DIR/config/pause.tar" registry.local/pause:1 '["/pause"]' "$RUN_DIR/config/pause:/pause"
  "$HERE/load-image.sh" "$RUN_DIR/config/pause.tar" "$RUN_DIR"
}

start_node() {
  step "starting kubelet and kube-proxy"
  # imageGCHighThresholdPercent 100: images are loaded once and cannot be pulled again, so never collect them.
  # housekeeping-interval: `cost` compares between two looks of the kubelet, which would be ten seconds apart.
  cat > "$RUN_DIR/config/kubelet.yaml" << YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: "$RUN_DIR/pki/ca.crt"}
authorization: {mode: Webhook}
staticPodPath: "$RUN_DIR/static"
tlsCertFile: "$RUN_DIR/pki/kubelet.crt"
tlsPrivateKeyFile: "$RUN_DIR/pki/kubelet.key"
containerRuntimeEndpoint: unix://$CONTAINERD_SOCKET
cgroupDriver: cgroupfs
failSwapOn: false
resolvConf: ""
volumePluginDir: $STATE/volume-plugins
podLogsDir: "$RUN_DIR/log/pods"
containerLogMaxSize: 10Mi
containerLogMaxFiles: 3
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: 1%
  nodefs.inodesFree: 1%
  imagefs.available: 1%
YAML
  start kubelet "$KUBERNETES_BIN/kubelet" --config "$RUN_DIR/config/kubelet.yaml" \
    --kubeconfig "$RUN_DIR/kubelet.kubeconfig" --root-dir "$STATE/kubelet" --cert-dir "$RUN_DIR/pki" \
    --hostname-override "$NODE" --node-ip "$NODE_IP" --containerd "$CONTAINERD_SOCKET" \
    --housekeeping-interval 1s
  # Conntrack limits are left as the machine has them.
  start proxy "$KUBERNETES_BIN/kube-proxy" --kubeconfig "$RUN_DIR/proxy.kubeconfig" --proxy-mode iptables \
    --hostname-override "$NODE" --cluster-cidr "$POD_CIDR" \
    --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0
  step "waiting for node $NODE to be ready"
  wait_for 90 node_ready || failed kubelet "the node does not become ready"
  wait_for 30 service_account_there || failed controller-manager "no default service account appears"
  running proxy || failed proxy "kube-proxy has ended"
}

service_account_there() { kubectl get serviceaccount default > /dev/null 2>&1; }

main
