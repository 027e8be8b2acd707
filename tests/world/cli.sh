#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rsched simulate and export: output byte for byte, and bad input.
#   cli.sh RSCHED GOLDEN_DIR          compare
#   cli.sh RSCHED GOLDEN_DIR update   write the golden files anew
set -u
rsched=$1 golden=$2 update=${3:-}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

cat > rails.yaml <<'END'
rsched: machine/1
name: rails
extends: tofu-k
topology: {type: fat-tree, leaf: 12, oversubscription: 2, rails: 4, link: 3850 MB/s}
END
cat > groups.yaml <<'END'
rsched: machine/1
name: groups
extends: rails.yaml
node: {processes: 2}
topology: {type: dragonfly, groups: 6, routers: 4, nodes: 2, links: 5, link: 13500 MB/s, global: 4830 MB/s}
END
cat > sourced.yaml <<'END'
rsched: pattern/1
name: sourced
puts:
  - {bytes: 100000, direction: E, from: 0, to: 1}
  - {bytes: 50000, direction: N, from: 1, to: 3}
  - {bytes: 1000, direction: W}
END
printf '3 2\n1 0\n' > map

# check NAME ARGUMENT...: the output is golden/NAME
check() {
    name=$1
    shift
    if ! "$rsched" "$@" > "$name"; then
        echo "FAIL $name: rsched $* failed"
        failed=1
    elif [ -n "$update" ]; then
        cp "$name" "$golden/$name"
    elif ! diff -u "$golden/$name" "$name"; then
        echo "FAIL $name: rsched $*"
        failed=1
    fi
}

check torus.txt simulate scale-les3:872:all --nodes 8x6 --scheduler bl4
check random.json simulate scale-les3:872:ewns -n 8x6 --mapping random:7 --routes balanced --jitter 1.5 --seed 3 -f json -s bl4
check shared.txt simulate scale-les3:218:all -n 8x6 --processes 4 -s bl4
check alone.csv simulate scale-les3:218:all -n 8x6 --processes 4 --plan alone -f csv -s bl4
check rails.txt simulate scale-les3:872:all -n 8x6 -m rails.yaml --scheduler bl2
check groups.txt simulate scale-les3:327:diag -n 8x6 -m ./groups.yaml --routes balanced -s bl4
check halo3d.csv simulate halo3d:32x32x32:h1:26 -n 4x4x4 -f csv -s bl4
check sourced.txt simulate sourced.yaml -n 2x2 -m tofu-k --mapping map -s bl4
# What a file extends lies beside it, from wherever it is read.
mkdir parts
cp rails.yaml parts/base
printf 'rsched: machine/1\nname: rails\nextends: base\n' > parts/more.yaml
"$rsched" simulate scale-les3:872:all -n 8x6 -m parts/more.yaml -s bl2 > more.txt || failed=1
sed 's|parts/more|rails|' more.txt | diff -u "$golden/rails.txt" - || failed=1
check goal.txt export scale-les3:60:ns -n 3x3 --format goal -s bl4
check trace.json export scale-les3:60:ew -n 3x1 --format trace -s bl4

# Tables hold nothing that a terminal would obey.
odd=$(printf 'odd\033')
printf '3 2 1 0\n' > "$odd"
printf 'rsched: machine/1\nname: m\nextends: tofu-k\n' > "$odd.yaml"
sed 's/^name: .*/name: "a\\nb\\e"/' sourced.yaml > named.yaml
"$rsched" simulate named.yaml -n 2x2 -m "$odd.yaml" --mapping "$odd" > out || failed=1
if ! grep -q '^pattern  *a?b? ' out || LC_ALL=C grep -q '[[:cntrl:]]' out; then
    echo "FAIL control characters in a table"
    failed=1
fi
# A terminal is told how far it is.
for command in simulate "export -f trace"; do
    script -qec "'$rsched' $command scale-les3:60:all -n 20x20" terminal < /dev/null > /dev/null
    grep -q ' puts, [0-9]* %' terminal || { echo "FAIL no progress: $command"; failed=1; }
done
script -qec "'$rsched' simulate scale-les3:872:all -n 3x3 -s exact" terminal < /dev/null > /dev/null
grep -q 'exact: 0 of 126 puts planned, [0-9]* s, [0-9]* of at most 12000000 nodes' terminal ||
    { echo "FAIL no progress: simulate -s exact"; failed=1; }

# bad CAUSE ARGUMENT...: status 2 and one line that names the cause
bad() {
    cause=$1
    shift
    "$rsched" "$@" > out 2> err < /dev/null
    status=$?
    if [ "$status" != 2 ] || [ "$(wc -l < err)" != 1 ] || [ -s out ] ||
       ! grep -qF -e "rsched: $cause" err; then
        echo "FAIL rsched $*: status $status, wanted: rsched: $cause"
        cat err
        failed=1
    fi
}
all=scale-les3:60:all
bad "--nodes is needed: machine tofu-k does not say" simulate $all
bad "--nodes: '8x' is not a grid" simulate $all -n 8x
bad "--nodes: '0x6' is not a grid" simulate $all -n 0x6
bad "--nodes: '9999999x9' has more than" simulate $all -n 9999999x9
bad "machine host: the machine has no topology" simulate $all -n 8x6 -m host
bad "machine groups.yaml: 49 nodes, but the dragonfly has 48" simulate $all -n 7x7 -m groups.yaml
bad "pattern scale-les3:60:all: put 0: direction 'NW' is no step in a grid of 3" simulate $all -n 2x2x2
bad "sourced.yaml:5:5: put 1: destination 3, but there are 2 processes" simulate sourced.yaml -n 2x1
bad "--mapping random:x: expected a whole number" simulate $all -n 8x6 --mapping random:x
bad "map: the mapping has 4 nodes, but there are 48 processes" simulate $all -n 8x6 --mapping map
bad "--mapping random: expected row-major, random:SEED (" simulate $all -n 8x6 --mapping random
bad "--mapping row-majr: expected row-major, random:SEED (" simulate $all -n 8x6 --mapping row-majr
bad "./nomap: No such file" simulate $all -n 8x6 --mapping ./nomap
bad "--routes fast: expected first|balanced" simulate $all -n 8x6 --routes fast
bad "--receive any: expected" simulate $all -n 8x6 --receive any
bad "--jitter 5us: " simulate $all -n 8x6 --jitter 5us
bad "--seed without --jitter" simulate $all -n 8x6 --seed 3
bad "--processes 0: it is from 1 to 1024" simulate $all -n 8x6 --processes 0
bad "--scheduler bl9: expected all|best|rr1|" simulate $all -n 8x6 -s bl9
bad "--scheduler all: expected best|rr1|" export $all -n 8x6 -f goal -s all
bad "export: --format goal|trace is needed" export $all -n 8x6
bad "export: --receive uncoordinated: GOAL has the same engine on both ends" \
    export $all -n 8x6 -f goal --receive uncoordinated
"$rsched" simulate --help | grep -q 'a scheduler (fllf), all, or best' ||
    { echo "FAIL simulate --help says nothing of all"; failed=1; }
sed 's/direction: W/&, from: 2, to: 3/; s/direction: N/direction: Q/' sourced.yaml > q.yaml
bad "q.yaml:5:5: put 1: direction 'Q' has no route in machine tofu-k" simulate q.yaml -n 4x4
bad "q.yaml:5:5: put 1: direction 'Q' has no route in machine tofu-k" export -f goal q.yaml -n 4x4
printf '0 0 1 2\n' > map
bad "map:1:3: more than 1 process on node 0" simulate sourced.yaml -n 2x2 --mapping map
printf '0 1\n 99 2\n' > map
bad "map:2:2: process 2 on node 99, but there are 4 nodes" simulate sourced.yaml -n 2x2 --mapping map
printf '0 1 2 x\n' > map
bad "map:1:7: a node 'x': expected a whole number" simulate sourced.yaml -n 2x2 --mapping map
printf '0 1\n2\0 3\n' > map
bad "map:2:2: a mapping has no zero bytes" simulate sourced.yaml -n 2x2 --mapping map
printf 'rsched: machine/1\nextends: loop.yaml\n' > loop.yaml
bad "loop.yaml:2:1: more than 8 machines extend each other" simulate $all -n 8x6 -m loop.yaml
printf 'rsched: machine/1\nname: t\nextends: gone.yaml\n' > t.yaml
bad "t.yaml:3:10: extends: gone.yaml: " simulate $all -n 8x6 -m t.yaml
sed 's/leaf: 12/leaf: 0/' rails.yaml > bad-rails.yaml
printf 'rsched: machine/1\nname: t\nextends: bad-rails.yaml\n' > t.yaml
bad "bad-rails.yaml:4:34: leaf must be at least 1" simulate $all -n 8x6 -m t.yaml
exit $failed
