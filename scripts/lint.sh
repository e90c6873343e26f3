#!/usr/bin/env bash
# lint.sh [--advisories]: everything that can be said about the sources without running them. Goes through all checks,
# and fails when one of them did.
#
# With --advisories also looks for known vulnerabilities of dependencies. That fetches a database from the network,
# which not every machine can reach, and its answer changes without any change here: hence only on demand.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"

DENY=(bans licenses sources)
case ${1:-} in
  '') ;;
  --advisories) DENY+=(advisories) ;;
  *) die "usage: lint.sh [--advisories]" ;;
esac

# The BPF programs and the fuzz targets are workspaces of their own.
WORKSPACES=(Cargo.toml ebpf/programs/Cargo.toml node-agent/fuzz/Cargo.toml operator/fuzz/Cargo.toml)

format() {
  local manifest
  for manifest in "${WORKSPACES[@]}"; do
    cargo fmt --manifest-path "$manifest" --all --check || return 1
  done
}

lints() {
  cargo clippy --quiet --locked --workspace --all-targets -- -D warnings || return 1
  # The fuzz target takes modules out of the agent, which may come to need another one. What the operator's check is part of a test,
  # and so among those above.
  cargo clippy --quiet --locked --manifest-path node-agent/fuzz/Cargo.toml --target-dir target/fuzz/lint -- -D warnings
}

dependencies() {
  local manifest deny
  deny=$(tool cargo-deny "$CACHE/cargo-deny-$CARGO_DENY" lint) || return 1
  for manifest in "${WORKSPACES[@]}"; do
    "$deny" --log-level warn --config "$ROOT/deny.toml" --manifest-path "$manifest" check "${DENY[@]}" || return 1
  done
}

shell() {
  local files
  mapfile -t files < <(committed '*.sh')
  shellcheck --external-sources "${files[@]}"
}

# workflows: also the scripts in them, by shellcheck.
workflows() {
  local actionlint
  actionlint=$(tool actionlint "$CACHE/actionlint-$ACTIONLINT" lint) || return 1
  "$actionlint"
}

generated() { scripts/render-config.sh --check; }

chart() {
  local helm
  helm=$(tool helm "$CACHE/helm-$HELM" cluster) || return 1
  "$helm" lint --quiet --strict charts/ckb-probe || return 1
  local example
  for example in charts/ckb-probe/examples/*.yaml; do
    "$helm" lint --quiet --strict charts/ckb-probe --values "$example" || return 1
  done
}

# dashboards: Grafana's own schema knows all that is in them, and they have all that it asks for.
dashboards() {
  local schema
  schema=$(tool grafana "$CACHE/grafana-schema-$GRAFANA_SCHEMA" lint) || return 1
  "$schema" charts/ckb-probe/monitoring/dashboards/*.json
}

# documentation: what a user can meet in the status or in Prometheus has its place in the docs, and only that.
# shellcheck disable=SC2016  # the backquotes are Markdown's
documentation() {
  same "reasons" \
    <(sed -n '/^pub enum Reason {/,/^}/s/^    \([A-Za-z]*\),$/\1/p' crds/src/conditions.rs) \
    <(sed -n 's/^### \([A-Za-z]*\)$/\1/p' docs/troubleshooting.md) &&
    same "metrics" \
      <(exported | grep --invert-match --line-regexp --fixed-strings --file <(metrics_of docs/reference/kinds.md)) \
      <(metrics_of docs/reference/metrics.md)
}

# exported: the metrics that the code names, but those of kinds, which only descriptors name.
exported() {
  find {operator,node-agent}/src crds/src/metrics.rs \( -path '*/metrics*' -o -path '*/export/*' \) -name '*.rs' ! -name tests.rs \
    -exec grep --no-filename --only-matching '"ckb_probe_[a-z_]*"' {} + | tr --delete '"'
}

# metrics_of PAGE: those that have a row in a table of its.
# shellcheck disable=SC2016  # the backquotes are Markdown's
metrics_of() { sed -n 's/^| `\(ckb_probe_[a-z_]*\)` .*/\1/p' "$1"; }

# kinds: a kind is at home in its folders and on the list, and named nowhere else but in tests.
kinds() {
  local variant folder strays=0
  while read -r variant folder; do
    committed '*.rs' |
      grep --invert-match --extended-regexp \
        "/kinds/$folder(/|\.rs$)|^crds/src/kinds\.rs$|(^|/)(tests|testing|benches|fixtures)(/|\.rs$)" |
      xargs grep --line-number --extended-regexp \
        "\bkinds::($folder\b|\{[^}]*\b$folder\b)|\b(Kind|Question)::$variant\b" && strays=1
  done < <(sed -n 's/^ *\([A-Z][A-Za-z]*\) "[A-Za-z]*" \([a-z_]*\) [A-Z].*/\1 \2/p' crds/src/kinds.rs)
  ((strays == 0)) || die "a kind is named outside of its folders and crds/src/kinds.rs"
}

# Words that were replaced, each by the one that an engineer of the field would search for.
declare -A REPLACED=(
  [Ailment]=Problem [Belonging]=Membership [Deaf]=CalibratedTier [Departures]=PendingDetaches [Desk]=PublishPlanner
  [Disturbance]=ObserverEffect [Flow]=Backpressure [Guests]=SharedTrap [Heading]=Category [Inquiry]=KindSpec [Ledger]=SocketTotals
  [LoadId]=GroupId [Means]=Tier [Outlook]=Prognosis [ProbeBook]=ProbeState [Shelf]=ProfileIndex [Sight]=ReportedState
  [Sighting]=ObservedLease [Strain]=Backpressure [Strand]=Subscription [Tally]=Accumulator [Verdict]=Prognosis
  [Witness]=DiskstatsCheck
)

# What a comment says that tells nothing: pronouns, and a verb of one.
HOLLOW='It|Its|They|Them|This|That|These|Those|When|What|Where|Who|Whose|Which|Why|How'
HOLLOW+='|This one|The same|Of what|Since when|So much|For people|(Writes|Packs|Keeps) it'

# style: no word comes back that was replaced, no comment is one pronoun, and the glossary is of names that exist.
style() {
  local word found=0
  for word in "${!REPLACED[@]}"; do
    if committed '*.rs' | xargs grep --line-number --word-regexp "$word"; then
      echo "$word is called ${REPLACED[$word]} here: see docs/glossary.md"
      found=1
    fi
  done
  if committed '*.rs' | xargs grep --line-number --extended-regexp "^\s*//[/!] ($HOLLOW)\.\$"; then
    echo "a comment of a pronoun tells nothing"
    found=1
  fi
  # shellcheck disable=SC2016  # the backquotes are Markdown's
  while read -r word; do
    committed '*.rs' | xargs grep --quiet --extended-regexp "\\b(struct|enum|trait|type|fn) $word\\b|kind = \"$word\"" || {
      echo "docs/glossary.md: there is no $word"
      found=1
    }
  done < <(grep --only-matching --extended-regexp '`[A-Z][A-Za-z]+`' docs/glossary.md | tr --delete '`' | sort --unique)
  links || found=1
  ((found == 0))
}

# links: what Markdown refers to in the repository is there.
links() {
  local page target broken=0
  while IFS=: read -r page target; do
    [[ -e $(dirname "$page")/$target ]] || {
      echo "$page: there is no $target"
      broken=1
    }
  done < <(committed '*.md' |
    xargs grep --only-matching --with-filename --extended-regexp '\]\([^)#: ]+[)#]' | sed 's/\](//; s/.$//')
  ((broken == 0))
}

# same WHAT IN_CODE IN_DOCS: whether both list the same.
same() {
  local difference
  difference=$(diff <(sort -u "$2") <(sort -u "$3")) && return
  printf 'the %s in the code (<) and those in the docs (>) differ:\n%s\n' "$1" "$difference"
  return 1
}

# tool NAME DIR GROUP: the pinned program, or whatever this machine has.
tool() {
  if [[ -x $2/bin/$1 ]]; then
    echo "$2/bin/$1"
  else
    command -v "$1" || die "$1 is missing: run scripts/setup.sh $3"
  fi
}

# committed PATTERN: the files of that name that are, or are to be, committed.
committed() { git ls-files --cached --others --exclude-standard "$1"; }

failed=()
for check in format lints dependencies shell workflows generated chart dashboards documentation kinds style; do
  step "$check"
  # A subshell of its own, so that `die` ends the check and not the script.
  ("$check") || failed+=("$check")
done
((${#failed[@]} == 0)) || die "failed: ${failed[*]}"
step "nothing to say"
