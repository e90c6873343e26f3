#!/usr/bin/env bash
# book-links.sh: a preprocessor of mdBook. Of each page a link to what is beside docs/ becomes one to the repository: how far up that is
# depends on how deep the page is. A README becomes the index of its folder, and so do links to it. The book goes in and comes out as JSON.
set -euo pipefail
BESIDE=https://github.com/ckb-probe/ckb-probe/blob/main/

# It is for every renderer.
[[ ${1:-} != supports ]] || exit 0
jq --compact-output --arg beside "$BESIDE" '
  def up: if . == 0 then "../" else "../" + (. - 1 | up) end;
  def named($depth): gsub("\\]\\(" + ($depth | up | gsub("\\."; "\\.")); "](" + $beside);
  def indexed: gsub("\\]\\((?<path>[^): ]*)README\\.md(?<end>[)#])"; "](\(.path)index.md\(.end)");
  def page:
    if .Chapter
    then .Chapter |= ((.path // "" | [scan("/")] | length) as $depth | .content |= (named($depth) | indexed) | .sub_items |= map(page))
    else . end;
  .[1] | if .items then .items |= map(page) else .sections |= map(page) end'
