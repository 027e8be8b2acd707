#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Output of the rsched command, byte for byte.
#   cli_golden.sh RSCHED GOLDEN_DIR          compare
#   cli_golden.sh RSCHED GOLDEN_DIR update   write the golden files anew
set -u
rsched=$1 golden=$2 update=${3:-}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

# check NAME ARGUMENT...: the output is golden/NAME
check() {
    name=$1
    shift
    if ! "$rsched" "$@" > "$work/$name"; then
        echo "FAIL $name: rsched $* failed"
        failed=1
    elif [ -n "$update" ]; then
        cp "$work/$name" "$golden/$name"
    elif ! diff -u "$golden/$name" "$work/$name"; then
        echo "FAIL $name: rsched $*"
        failed=1
    fi
}

check pattern-scale-les3-872-all.yaml pattern scale-les3 --grid 872 --directions all
check pattern-halo2d.yaml pattern halo2d --size 64x64 --width 2 --neighbors 8
check pattern-halo3d.yaml pattern halo3d --size 16x8x4 --width 1
check plan-872-all.txt plan scale-les3:872:all --machine tofu-k --scheduler bl4
check plan-872-all.json plan scale-les3:872:all --machine tofu-k --scheduler bl4 --format json
check plan-60-diag.yaml plan scale-les3:60:diag --scheduler bl4-seeded --format yaml
check plan-872-all-fllf.json plan scale-les3:872:all --format json
check plan-60-diag-exact.txt plan scale-les3:60:diag --scheduler exact
check plan-872-ew-split.yaml plan scale-les3:872:ew --split --format yaml
check plan-host.txt plan halo2d:100x80:h1:4 --machine host
check plan-rails.txt plan scale-les3:872:all --machine rails
check plan-rails-mixed.txt plan scale-les3:872:ns --machine rails-mixed --scheduler exact
check compare-rails.txt compare scale-les3:872:all --machine rails-mixed
check compare-jitter.csv compare scale-les3:60:ns --jitter 1 --format csv
check plan-jitter.txt plan scale-les3:872:ewns --jitter 5
check compare.txt compare scale-les3:872:ns scale-les3:60:diag --machine tofu-k
check compare-explain.txt compare scale-les3:109:ewns --machine tofu-k --all --explain
check compare.csv compare scale-les3:872:ew scale-les3:872:ns scale-les3:872:ewns scale-les3:872:diag scale-les3:872:all --machine tofu-k --format csv
check compare-3d.csv compare halo3d:64x64x64:h2:26 --format csv --explain

# What one command writes the other reads, to the same result.
same() {
    if ! cmp -s "$work/$1" "$work/$2"; then
        echo "FAIL $1 and $2 differ"
        failed=1
    fi
}
"$rsched" pattern scale-les3:872:all -o "$work/p.yaml" || failed=1
"$rsched" plan "$work/p.yaml" -s bl4 --format json > "$work/from-file.json" || failed=1
cp "$golden/plan-872-all.json" "$work/golden.json"
same from-file.json golden.json
"$rsched" plan - < "$work/p.yaml" -s bl4 --format json > "$work/from-stdin.json" || failed=1
same from-stdin.json golden.json
# Options may stand behind the pattern, whatever the environment says of others.
POSIXLY_CORRECT=1 "$rsched" plan "$work/p.yaml" -s bl4 --format json > "$work/posix.json" || failed=1
same posix.json golden.json
# Standard input is read once, however often it is needed.
"$rsched" pattern scale-les3:872:ewns | "$rsched" plan - --jitter 5 > "$work/late.txt" || failed=1
cp "$golden/plan-jitter.txt" "$work/golden.txt"
same late.txt golden.txt
printf 'rsched: machine/1\nname: m\nextends: tofu-k\n' > "$work/m.yaml"
"$rsched" compare scale-les3:872:ns scale-les3:60:diag -m - < "$work/m.yaml" > "$work/compared.txt" || failed=1
cp "$golden/compare.txt" "$work/golden.txt"
same compared.txt golden.txt
"$rsched" plan "$work/p.yaml" -s bl4 --format yaml -o "$work/s.yaml" || failed=1
"$rsched" draw scale-les3:872:all -s bl4 -o "$work/a.svg" || failed=1
"$rsched" draw "$work/s.yaml" -o "$work/b.svg" || failed=1
"$rsched" draw "$work/golden.json" > "$work/c.svg" || failed=1
# Times of any length come back to the picosecond.
printf 'rsched: pattern/1\nname: p\nputs:\n  - {bytes: 1073741824, direction: N}\n' > "$work/long.yaml"
"$rsched" plan "$work/long.yaml" -m soft-roce-2 -f json -o "$work/long.json" || failed=1
grep -q '1781759677.356315,' "$work/long.json" || { echo "FAIL no 1781 s in long.json"; failed=1; }
"$rsched" draw "$work/long.json" > /dev/null || failed=1
printf 'rsched: machine/1\nname: m\nengines: {count: 1, rate: 60 TB/s}\nroutes: {N: []}\n' > "$work/fast.yaml"
sed 's/1073741824/60/' "$work/long.yaml" > "$work/short.yaml"
"$rsched" plan "$work/short.yaml" -m "$work/fast.yaml" -f json -o "$work/short.json" || failed=1
"$rsched" draw "$work/short.json" > /dev/null || failed=1
same a.svg b.svg
same a.svg c.svg
"$rsched" draw scale-les3:872:all -o "$work/a.html" || failed=1
grep -q '</svg>' "$work/a.html" || { echo "FAIL no picture in a.html"; failed=1; }
# A box per put, and nothing but what XML allows.
boxes=$(grep -c 'class="box".*<title>put ' "$work/a.svg")
[ "$boxes" = 14 ] || { echo "FAIL $boxes boxes, not 14"; failed=1; }
if command -v xmllint > /dev/null; then
    xmllint --noout "$work/a.svg" || failed=1
fi
# Whatever names hold, and wherever they are cut.
long=$(printf '%0100d' 0 | sed 's/0/\xe4\xba\xac/g')
printf 'rsched: machine/1\nname: m\nengines: {count: 1, rate: 1 GB/s}\nlinks: {x%s: 1 GB/s}\n' "$long" > "$work/$(printf '\377').yaml"
printf 'routes: {N: [x%s]}\n' "$long" >> "$work/$(printf '\377').yaml"
printf 'rsched: pattern/1\nname: "<&\\uFFFE\\uFFFF\\x01>"\nputs:\n  - {bytes: 9000, direction: N}\n' > "$work/odd.yaml"
"$rsched" draw "$work/odd.yaml" -m "$work/$(printf '\377').yaml" -o "$work/odd.svg" || failed=1
python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$work/odd.svg" ||
    { echo "FAIL odd.svg is no XML"; failed=1; }
# Nor do tables hold what a terminal would obey.
printf 'rsched: machine/1\nname: m\nengines: {count: 1, rate: 1 GB/s}\nlinks: {"x\\e[1m": 1 MB/s}\n' > "$work/$(printf 'm\033').yaml"
printf 'routes: {"N\\e": ["x\\e[1m"]}\n' >> "$work/$(printf 'm\033').yaml"
printf 'rsched: pattern/1\nname: "a\\nb\\e[1m"\nputs:\n  - {bytes: 9000, direction: "N\\e"}\n' > "$work/control.yaml"
for command in plan compare "compare --explain"; do
    # shellcheck disable=SC2086
    "$rsched" $command "$work/control.yaml" -m "$work/$(printf 'm\033').yaml" > "$work/out" || failed=1
    { grep -q 'a?b?\[1m' "$work/out" && ! LC_ALL=C grep -q '[[:cntrl:]]' "$work/out"; } ||
        { echo "FAIL control characters: $command"; failed=1; }
done
grep -q 'limited by link x?\[1m;' "$work/out" || { echo "FAIL no link that limits"; failed=1; }
# Every direction has a color, where "*" stands first, too.
printf 'rsched: machine/1\nname: m\nengines: {count: 1, rate: 1 GB/s}\nroutes: {"*": [], A: []}\n' > "$work/any.yaml"
printf 'rsched: pattern/1\nname: p\nputs:\n  - {bytes: 9000, direction: B}\n  - {bytes: 9000, direction: A}\n' > "$work/ab.yaml"
"$rsched" draw "$work/ab.yaml" -m "$work/any.yaml" -o "$work/ab.svg" || failed=1
colors=$(grep -o 'class="box" fill="[^"]*"' "$work/ab.svg" | sort -u | wc -l)
[ "$colors$(grep -c '>[AB]</text>' "$work/ab.svg")" = 22 ] || { echo "FAIL a direction has no color"; failed=1; }
# Of one pattern a direction has the same color on each machine, up to 64 of their own.
color() { sed -n "s/.*class=\"box\" \(fill=[^>]*\)><title>put [0-9]* $1: .*/\1/p" "$2" | sort -u; }
"$rsched" draw scale-les3:872:all -m rails -o "$work/rails.svg" || failed=1
[ -n "$(color W "$work/a.svg")" ] && [ "$(color W "$work/a.svg")" = "$(color W "$work/rails.svg")" ] ||
    { echo "FAIL another color on another machine"; failed=1; }
{
    printf 'rsched: pattern/1\nname: %s\nputs:\n' "$long"
    for i in $(seq 40); do echo "  - {bytes: 9000, direction: d$i}"; done
} > "$work/many.yaml"
"$rsched" draw "$work/many.yaml" -m "$work/any.yaml" -o "$work/many.svg" || failed=1
[ "$(color d1 "$work/many.svg")" != "$(color d33 "$work/many.svg")" ] ||
    { echo "FAIL two of 40 directions look alike"; failed=1; }
# What is cut ends in an ellipsis, and is whole on hover.
cut="$long</title>[^<]*$(printf '\342\200\246')</text>"
grep -q "<title>$cut" "$work/many.svg" ||
    { echo "FAIL a long title has no ellipsis"; failed=1; }
grep -q "<title>x$cut" "$work/odd.svg" ||
    { echo "FAIL a long link has no ellipsis"; failed=1; }
if [ "$(umask)" = 0022 ] && [ "$(stat -c %a "$work/a.svg")" != 644 ]; then
    echo "FAIL a.svg has mode $(stat -c %a "$work/a.svg")"
    failed=1
fi
# A link stays one; a device is written to, not replaced.
ln -s real.svg "$work/link.svg"
: > "$work/real.svg"
"$rsched" draw scale-les3:872:all -s bl4 -o "$work/link.svg" || failed=1
[ -L "$work/link.svg" ] || { echo "FAIL the link is gone"; failed=1; }
same real.svg a.svg
# A link to a file that is not there yet, through another one in another folder.
mkdir "$work/deep"
ln -s deep/second.svg "$work/first.svg"
ln -s third.svg "$work/deep/second.svg"
"$rsched" draw scale-les3:872:all -s bl4 -o "$work/first.svg" || failed=1
[ -L "$work/first.svg" ] && [ -L "$work/deep/second.svg" ] || { echo "FAIL a dangling link is gone"; failed=1; }
same deep/third.svg a.svg
# The mode of a file that is replaced stays.
chmod 600 "$work/real.svg"
"$rsched" draw scale-les3:872:all -s bl4 -o "$work/real.svg" || failed=1
[ "$(stat -c %a "$work/real.svg")" = 600 ] || { echo "FAIL real.svg has another mode"; failed=1; }
"$rsched" plan scale-les3:872:all -o /dev/null || failed=1
[ -c /dev/null ] || { echo "FAIL /dev/null is gone"; failed=1; }
# The machine of a schedule lies beside it, if it does not where the command runs.
mkdir "$work/plans"
printf 'rsched: machine/1\nname: k\nextends: tofu-k\n' > "$work/plans/k.yaml"
(cd "$work/plans" && "$rsched" plan scale-les3:872:all -m k.yaml -f yaml -o s.yaml) || failed=1
(cd "$work" && "$rsched" draw plans/s.yaml -o beside.svg) || { echo "FAIL a machine beside its schedule"; failed=1; }
grep -q 'plans/k.yaml' "$work/beside.svg" || { echo "FAIL the machine has another name"; failed=1; }
"$rsched" plan scale-les3:872:all -m - -f yaml < "$work/plans/k.yaml" > "$work/piped.yaml" || failed=1
"$rsched" draw "$work/piped.yaml" -m "$work/plans/k.yaml" > /dev/null || failed=1
# A schedule with split puts comes back as it was, part by part.
"$rsched" draw "$golden/plan-872-ew-split.yaml" -o "$work/split.svg" || failed=1
boxes=$(grep -c 'class="box".*<title>put ' "$work/split.svg")
[ "$boxes" = 4 ] || { echo "FAIL $boxes boxes, not 4"; failed=1; }
# The demonstration explains itself, and refuses what it does not know, before it does anything.
demo=$golden/../../../demo
"$demo" --help | grep -q '^usage: ./demo' || { echo "FAIL demo --help"; failed=1; }
"$demo" --frob > "$work/out" 2> "$work/err"
[ $? = 2 ] && [ ! -s "$work/out" ] && grep -q '^usage: ./demo' "$work/err" || { echo "FAIL demo --frob"; failed=1; }
# So does the benchmark with where it is to write; the paper's tables may be cut, and be lost.
python3 -B "$golden/../../../bench/run" --csv "$work/none/a.csv" > "$work/out" 2> "$work/err"
[ $? = 2 ] && grep -q "error: $work/none/a.csv: No such file" "$work/err" ||
    { echo "FAIL bench/run --csv in no folder"; failed=1; }
paper() { python3 -B "$golden/../../../bench/paper" --build "$(dirname "$rsched")/.." --brief 2> "$work/err"; }
paper | true
[ ! -s "$work/err" ] || { echo "FAIL bench/paper into a pipe"; cat "$work/err"; failed=1; }
if [ -w /dev/full ]; then
    paper > /dev/full
    [ $? = 1 ] && [ "$(cat "$work/err")" = "paper: standard output: No space left on device" ] ||
        { echo "FAIL bench/paper on a full disk"; cat "$work/err"; failed=1; }
fi
# A proof that is not found, or not tried, is told of, and its end stands in the schedule that is read again.
seq 25 | sed 's/.*/  - {bytes: &0000, direction: N}/' > "$work/puts"
printf 'rsched: pattern/1\nname: kinds\nputs:\n' | cat - "$work/puts" > "$work/kinds.yaml"
unproven() {
    end=$1
    shift
    for format in text yaml json; do
        "$rsched" plan "$@" -s exact -f $format > "$work/out" 2> "$work/err" &&
            grep -q "^ *\"*search.*$end" "$work/out" && [ "$(cat "$work/err")" = \
            "rsched: warning: exact has proven nothing: its search was $end" ] ||
            { echo "FAIL nothing of a search that was $end"; cat "$work/err"; failed=1; }
        [ $format = text ] || "$rsched" draw "$work/out" > /dev/null || failed=1
    done
}
unproven "not tried: more than 24 kinds of puts" "$work/kinds.yaml"
unproven "ended by the limit of nodes" scale-les3:872:all --nodes 5
"$rsched" plan scale-les3:60:diag -s exact 2>&1 | grep -q '^search  *[0-9]* nodes$' || { echo "FAIL a search that proves"; failed=1; }
# One is one.
"$rsched" plan "$work/short.yaml" -m "$work/fast.yaml" | grep -q '(1 put, ' || { echo "FAIL 1 puts"; failed=1; }
"$rsched" simulate scale-les3:60:ns -n 1x1 | grep -q ' of 1 node, ' || { echo "FAIL 1 nodes"; failed=1; }
# Machines stand in columns.
"$rsched" info | sed -n '/^built-in machines/,/^$/p' | grep '^  ' | grep -vqE '^  [^ ]+ +[0-9]+ engine' &&
    { echo "FAIL a machine in info"; failed=1; }
[ "$("$rsched" info | sed -n '/^built-in machines/,/^$/p' | grep '^  ' | sed 's/^\(  [^ ]* *\)[0-9].*/\1/' |
    awk '{ print length($0) }' | sort -u | wc -l)" = 1 ] || { echo "FAIL machines are not in columns"; failed=1; }
# A pattern without puts can be planned and drawn.
printf 'rsched: pattern/1\nname: none\nputs: []\n' > "$work/none.yaml"
"$rsched" compare "$work/none.yaml" --explain > "$work/out" || failed=1
{ grep -q '^fllf: limited by nothing: no single change' "$work/out" && ! grep -q 'without that' "$work/out"; } ||
    { echo "FAIL what limits nothing"; failed=1; }
"$rsched" draw "$work/none.yaml" -o "$work/none.svg" || failed=1
for command in help info "info --config" --version "help plan" "draw --help"; do
    # shellcheck disable=SC2086
    "$rsched" $command > "$work/out" || { echo "FAIL rsched $command"; failed=1; }
    [ -s "$work/out" ] || { echo "FAIL rsched $command prints nothing"; failed=1; }
done
# The help of each command that is listed, in both ways: what it does, and its options.
commands=$("$rsched" help | sed -n 's/^  \([a-z]*\) .*/\1/p')
[ "$(echo "$commands" | wc -l)" = 10 ] || { echo "FAIL commands: $commands"; failed=1; }
for command in $commands; do
    "$rsched" "$command" --help > "$work/own" && "$rsched" help "$command" > "$work/out" &&
        cmp "$work/own" "$work/out" && "$rsched" "$command" -h | cmp "$work/own" - || { echo "FAIL help of $command"; failed=1; }
    [ "$(sed -n 1p "$work/own" | cut -d ' ' -f 1-3)" = "usage: rsched $command" ] &&
        [ -n "$(sed -n 2p "$work/own")" ] &&
        [ "$(tail -n 1 "$work/own")" = "  -h, --help                   print this" ] &&
        ! grep -E '^ +-' "$work/own" | grep -qvE '^(  -[a-z], |      )--[a-z-]+( [^ ]+)?  +[^ ]' ||
        { echo "FAIL help of $command:"; cat "$work/own"; failed=1; }
done
# A full disk is a failure, not a bad input, and is noticed.
if [ -w /dev/full ]; then
    {
        echo "rsched: pattern/1"
        echo "name: long"
        echo "puts:"
        seq 200 | sed 's/.*/  - {bytes: &, direction: N}/'
    } > "$work/long.yaml"
    for command in "plan scale-les3:872:all" help "help plan" --version \
                   "draw --help" "plan $work/long.yaml --format yaml" \
                   "plan $work/long.yaml --format json"; do
        # shellcheck disable=SC2086
        "$rsched" $command > /dev/full 2> "$work/err"
        [ $? = 1 ] && [ "$(wc -l < "$work/err")" = 1 ] ||
            { echo "FAIL a full disk is not noticed: $command"; failed=1; }
    done
fi
# Nor does a file that would be longer than it may be leave anything.
said=$( (ulimit -f 1; "$rsched" draw scale-les3:872:all -o "$work/limit.svg") 2>&1)
[ $? = 1 ] && [ "$said" = "rsched: $work/limit.svg: File too large" ] &&
    [ -z "$(find "$work" -name 'limit.svg*' -o -name '.rsched-*')" ] || { echo "FAIL a file that is too long: $said"; failed=1; }
"$rsched" draw scale-les3:872:all -o "$work/none/a.svg" 2> "$work/err"
[ $? = 1 ] || { echo "FAIL a missing directory is not noticed"; failed=1; }
# What cannot be written is told before anything is read, let alone planned.
for command in plan compare draw simulate "export -f trace"; do
    # shellcheck disable=SC2086
    "$rsched" $command "$work/gone.yaml" -o "$work/none/a.svg" 2> "$work/err"
    [ $? = 1 ] && [ "$(cat "$work/err")" = "rsched: $work/none/a.svg: No such file or directory" ] ||
        { echo "FAIL $command reads before it looks where to write"; failed=1; }
done
# A name may be as long as names can be.
name=$(printf '%0251d.svg' 0)
"$rsched" draw scale-les3:872:all -s bl4 -o "$work/$name" || failed=1
same "$name" a.svg
# A terminal is told how far a search is, and nobody else.
for command in "plan -s exact" "draw -s exact -o '$work/told.svg'" "compare --all"; do
    script -qec "'$rsched' $command scale-les3:872:all" "$work/terminal" < /dev/null > /dev/null
    grep -q 'exact: [0-9]* s, 65536 of at most 12000000 nodes, best 79.800, bound 76.023 us' "$work/terminal" ||
        { echo "FAIL no progress: $command"; failed=1; }
done
[ -z "$("$rsched" plan -s exact scale-les3:872:all 2>&1 > /dev/null)" ] || { echo "FAIL progress in a file"; failed=1; }
# A file that its user may not write stays as it is, though others may be made beside it.
as=
[ "$(id -u)" != 0 ] || as="setpriv --reuid 65534 --clear-groups"
if $as "$rsched" --version > /dev/null 2>&1; then
    chmod 711 "$work"
    mkdir -m 777 "$work/open"
    echo kept > "$work/open/a.svg"
    chmod 444 "$work/open/a.svg"
    said=$($as "$rsched" draw scale-les3:872:all -o "$work/open/a.svg" 2>&1)
    [ $? = 1 ] && [ "$said" = "rsched: $work/open/a.svg: Permission denied" ] &&
        [ "$(cat "$work/open/a.svg")" = kept ] || { echo "FAIL a file that may not be written: $said"; failed=1; }
fi
exit $failed
