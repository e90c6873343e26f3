# shellcheck shell=bash
# What the cluster's scripts share: names, paths, and how its processes are started, recognised and ended. Sourced.
#
# There is at most one such cluster per machine, since it uses fixed ports, chains and cgroups. What must have a short
# path (a unix socket's may be 107 bytes long) or is shared by the machine lives in $STATE and $SOCKETS; what a person
# or a test wants to see (pids, logs, kubeconfigs) in RUN_DIR. While $STATE exists, the machine is this cluster's.

HERE=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$HERE/../../scripts/lib.sh"

# shellcheck disable=SC2034  # read by the scripts that source this file
{
  STATE=/var/lib/ckb-probe-cluster
  SOCKETS=/run/ckb-probe-cluster
  CONTAINERD_SOCKET=$SOCKETS/containerd.sock
  NODE=node0
  NODE_IP=192.0.2.10 # the API server refuses to advertise a loopback address, so the loopback device gets this one
  SERVICE_IP=10.96.0.1
  SERVICE_CIDR=10.96.0.0/16
  POD_CIDR=10.244.0.0/24
  BRIDGE=ckb-probe0
  ETCD_URL=http://127.0.0.1:12379
  ETCD_PEER_URL=http://127.0.0.1:12380
  API_URL=https://127.0.0.1:6443
  KUBERNETES_BIN=$CACHE/kubernetes-$KUBERNETES/bin
}

# use_run_dir [DIR]: sets RUN_DIR.
use_run_dir() { RUN_DIR=$(realpath -m "${1:-${CKB_PROBE_RUN:-$HERE/../../target/cluster}}"); }

# lock: one script at a time changes the cluster of this machine. The lock is on a folder that is always there, so that
# it leaves no file behind.
lock() {
  [[ -z ${CKB_PROBE_CLUSTER_LOCKED:-} ]] || return 0
  exec {LOCK}< /run
  flock --nonblock "$LOCK" || {
    step "waiting for another up, down or apiserver command"
    flock "$LOCK"
  }
  export CKB_PROBE_CLUSTER_LOCKED=1
}

# refuse_other_run_dir: the cluster is one per machine, whatever the number of clones; none may surprise another.
refuse_other_run_dir() {
  [[ -s $STATE/run-dir ]] || return 0
  local other
  other=$(< "$STATE/run-dir")
  [[ $other == "$RUN_DIR" ]] ||
    die "this machine's cluster has the folder $other: give that folder, or first take it down: $HERE/down.sh '$other'"
}

kubectl() {
  "$KUBERNETES_BIN/kubectl" --kubeconfig "$RUN_DIR/admin.kubeconfig" --cache-dir "$RUN_DIR/kubectl-cache" "$@"
}
ctr() { command ctr --address "$CONTAINERD_SOCKET" --namespace k8s.io "$@"; }

# start NAME COMMAND...: starts a process of the cluster in a session of its own, with its pid in RUN_DIR/NAME.pid and
# its output in RUN_DIR/log/NAME.log. The variable marks the process, and what it starts, as the cluster's.
start() {
  local name=$1
  shift
  # `env` comes last: the process carries the mark from its last exec on, and not before. In the middle of an exec a process has no
  # environment at all, so that one that was marked before it would seem to have ended.
  setsid env -u CKB_PROBE_CLUSTER_LOCKED CKB_PROBE_CLUSTER_PROCESS="$name" "$@" \
    < /dev/null >> "$RUN_DIR/log/$name.log" 2>&1 {LOCK}<&- &
  echo $! > "$RUN_DIR/$name.pid"
  wait_for 5 marked_or_gone $! "$name" || die "cannot start $name"
}

marked_or_gone() { is_ours "$1" "$2" || none_alive "$1"; }

# is_ours PID [NAME]: whether PID is a process that `start` started, or a descendant of one.
is_ours() {
  local marker=CKB_PROBE_CLUSTER_PROCESS=${2:-}
  [[ -n ${2:-} ]] && marker+='$'
  grep --quiet --null-data "^$marker" "/proc/$1/environ" 2> /dev/null
}

# running NAME: whether the pid in RUN_DIR/NAME.pid is (still) the process that was started under that name.
running() {
  local pid
  [[ -s $RUN_DIR/$1.pid ]] && pid=$(< "$RUN_DIR/$1.pid") && is_ours "$pid" "$1"
}

# our_pids: every process that carries the mark, found without the pid files, which `cargo clean` may have taken.
our_pids() {
  local environ
  for environ in /proc/[0-9]*/environ; do
    grep --quiet --null-data '^CKB_PROBE_CLUSTER_PROCESS=' "$environ" 2> /dev/null || continue
    basename "$(dirname "$environ")"
  done
}

# kubepods_cgroups: the top cgroups of the pods, in each hierarchy of cgroup v1 or in the one of v2.
kubepods_cgroups() { find /sys/fs/cgroup -maxdepth 2 -type d -name kubepods; }

# container_pids: every process inside a pod.
container_pids() {
  local cgroup
  kubepods_cgroups | while read -r cgroup; do
    find "$cgroup" -name cgroup.procs -exec cat {} + 2> /dev/null
  done | sort -nu
}

# our_mounts: what is mounted under the cluster's folders, the innermost last.
our_mounts() {
  awk -v state="$STATE/" -v sockets="$SOCKETS/" '
    index($5, state) == 1 || index($5, sockets) == 1 { print $5 }' /proc/self/mountinfo
}

# our_chains COMMAND: "TABLE CHAIN" for each chain that Kubernetes or CNI made, where COMMAND is iptables or ip6tables.
our_chains() {
  "$1-save" | awk '/^\*/ { table = substr($1, 2) } /^:(KUBE|CNI)-/ { print table, substr($1, 2) }'
}

# our_sets: the sets of addresses that our rules look into, where the kernel has such; an older machine has no ipset.
our_sets() { ! command -v ipset > /dev/null || ipset list -name | grep -E '^(inet6:)?KUBE-' || :; }

# our_cni_results: what the CNI library remembers of pods that are not torn down yet. It has one place for everybody.
our_cni_results() {
  [[ ! -d /var/lib/cni/results ]] || find /var/lib/cni/results -type f -exec grep -l --fixed-strings "$SOCKETS/" {} +
}

# our_links: the bridge of the pods and what is plugged into it.
our_links() {
  ip -oneline link show | awk -F': ' -v bridge="$BRIDGE" '
    { split($2, name, "@") } name[1] == bridge || $0 ~ " master " bridge " " { print name[1] }'
}

# wait_for SECONDS COMMAND...: whether COMMAND came to succeed within the time.
wait_for() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.2
  done
}

# end SIGNAL SECONDS PIDS...: signals those that are there, and says whether all of them went within the time.
end() {
  local signal=$1 seconds=$2
  shift 2
  (($#)) || return 0
  kill -s "$signal" "$@" 2> /dev/null || : # one of them may have gone by itself meanwhile
  wait_for "$seconds" none_alive "$@"
}

none_alive() {
  local pid state threads
  for pid in "$@"; do
    # A zombie is gone: only its parent can remove the entry. But its first thread may be one before the others have let go of
    # what they share, such as the port that it listens on.
    state=$(awk '/^State:/ { print $2 }' "/proc/$pid/status" 2> /dev/null) || continue
    threads=("/proc/$pid/task"/*)
    [[ -z $state || ($state == Z && ${#threads[@]} -le 1) ]] || return 1
  done
}

# stop NAME: ends one process of the cluster, if it runs, and forgets its pid.
stop() {
  if running "$1"; then
    local pid
    pid=$(< "$RUN_DIR/$1.pid")
    end TERM 10 "$pid" || end KILL 10 "$pid" || die "$1 (process $pid) does not end"
  fi
  rm -f "$RUN_DIR/$1.pid"
}

# failed NAME TEXT: ends the script with the end of NAME's log.
failed() {
  tail -n 20 "$RUN_DIR/log/$1.log" >&2
  die "$2. Above: the end of $RUN_DIR/log/$1.log. Take down what is there with $HERE/down.sh"
}

api_ready() { kubectl get --raw /readyz > /dev/null 2>&1; }

# start_apiserver: starts it, and waits until it answers.
start_apiserver() {
  local pki=$RUN_DIR/pki
  start apiserver "$KUBERNETES_BIN/kube-apiserver" \
    --etcd-servers="$ETCD_URL" --secure-port=6443 --advertise-address="$NODE_IP" \
    --service-cluster-ip-range="$SERVICE_CIDR" --authorization-mode=Node,RBAC --allow-privileged=true \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$pki/service-account.pub" --service-account-signing-key-file="$pki/service-account.key" \
    --enable-admission-plugins=NodeRestriction \
    --requestheader-client-ca-file="$pki/ca.crt" --requestheader-allowed-names=front-proxy \
    --kubelet-client-certificate="$pki/admin.crt" --kubelet-client-key="$pki/admin.key" \
    --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP
  wait_for 90 api_ready_or_gone && api_ready && return
  failed apiserver "the API server does not answer"
}

api_ready_or_gone() { api_ready || ! running apiserver; }

containerd_answers() { ctr version > /dev/null 2>&1; }

node_ready() {
  [[ $(kubectl get node "$NODE" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2> /dev/null) == True ]]
}

# What the kernel holds of the cluster, whose processes have ended.

remove_mounts() {
  local mount
  our_mounts | tac | while read -r mount; do
    # mountinfo writes a blank as \040
    umount "$(printf '%b' "${mount//\\/\\0}")"
  done
}

remove_links() {
  local link
  our_links | while read -r link; do
    # The kernel removes a veth by itself, soon after its network namespace is gone.
    ip link delete "$link" 2> /dev/null || ! ip link show "$link" > /dev/null 2>&1 || die "cannot delete the link $link"
  done
}

# remove_chains COMMAND [PATTERN]: in each table, deletes the rules that jump to our chains, empties the chains, deletes them; of those alone
# whose names begin with PATTERN, where it is given.
remove_chains() {
  "$1-save" | awk -v ours="${2:-(KUBE|CNI)-}" '
    /^\*/ { table = $1 }
    $0 ~ "^:" ours {
      chain = substr($1, 2)
      empty[table] = empty[table] "-F " chain "\n"
      remove[table] = remove[table] "-X " chain "\n"
    }
    /^-A / && $2 !~ "^" ours && $0 ~ " -j " ours {
      sub(/^-A/, "-D")
      unhook[table] = unhook[table] $0 "\n"
    }
    END { for (table in empty) printf "%s\n%s%s%sCOMMIT\n", table, unhook[table], empty[table], remove[table] }
  ' | "$1-restore" --noflush
}

# After the chains, whose rules look into them.
remove_sets() {
  local set
  our_sets | while read -r set; do ipset destroy "$set"; done
}

remove_cgroups() {
  local cgroup
  kubepods_cgroups | while read -r cgroup; do
    wait_for 10 remove_cgroup "$cgroup" || die "cannot remove the cgroup $cgroup"
  done
}

# A cgroup stays busy for a moment after its last process.
remove_cgroup() { find "$1" -depth -type d -exec rmdir {} + 2> /dev/null; }
