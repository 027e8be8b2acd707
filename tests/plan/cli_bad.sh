#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Bad input: exit status 2, exactly one line on standard error that names the
# cause, and nothing left on disk.
#   cli_bad.sh RSCHED
set -u
rsched=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir in out
# Files, because the cases run in subshells.
: > cases
: > failed

# bad CAUSE ARGUMENT...: fails, and the line contains CAUSE
bad() {
    cause=$1
    shift
    echo >> cases
    "$rsched" "$@" > stdout 2> stderr < /dev/null
    status=$?
    lines=$(wc -l < stderr)
    if [ "$status" != 2 ] || [ "$lines" != 1 ] || [ -s stdout ] ||
       [ -n "$(ls -A out)" ] || ! grep -qF -e "rsched: $cause" stderr; then
        echo "FAIL rsched $*"
        echo "     status $status, $lines lines, wanted: rsched: $cause"
        sed 's/^/     /' stderr
        echo >> failed
        rm -rf out/*
    fi
}

# pattern CAUSE: the text on standard input is a bad pattern
pattern() {
    cat > in/p.yaml
    bad "in/p.yaml:$1" plan in/p.yaml -o out/plan.txt
}
machine() {
    cat > in/m.yaml
    bad "in/m.yaml:$1" draw scale-les3:60:ns -m in/m.yaml -o out/a.svg
}
schedule() {
    cat > in/s.yaml
    bad "in/s.yaml:$1" draw in/s.yaml -o out/a.svg
}
# The same with one line of a good file replaced.
edit() { sed "$2" in/good-"$1".yaml | "$1" "$3"; }

# --- the command line
bad "no command given"
# Options of run end at the launcher, however they are written.
bad "cannot run 'none': no such command" run -vr json none -np 2
bad "cannot run 'none': no such command" run --rep json none --frob
bad "cannot run 'none': no such command" run -- none -
bad "run: option '-vr' needs a value" run -vr
# A name that LD_PRELOAD cannot hold is no reason to run without the backend.
printf '#!/bin/sh\necho Open MPI\n' > in/mpirun
chmod +x in/mpirun
for folder in "in/a b" in/a:b; do
    mkdir -p "$folder/bin" "$folder/lib/rsched"
    cp "$rsched" "$folder/bin/rsched"
    touch "$folder/lib/rsched/librsched-openmpi.so" "$folder/lib/rsched/librsched-heap.so"
    (rsched=$folder/bin/rsched
     bad "cannot preload $(pwd -P)/$folder/lib/rsched/librsched-openmpi.so: " run in/mpirun -np 1 ls)
done
bad "no command 'plna'" plna
bad "no command '--frob'" --frob
bad "plan: expected PATTERN" plan
bad "plan: one argument too many: 'b'" plan a b
bad "plan: bad option '--frob'" plan --frob
bad "plan: bad option '--=3'" plan --=3
bad "plan: option --split takes no value" plan --split=yes
bad "plan: option --split takes no value" plan --spl=yes
bad "plan: option --help takes no value" plan --help=yes
bad "plan: option '--s' may be any of --scheduler, --split, --seconds" plan --s x
bad "plan: option --output has an empty value" plan scale-les3:60:ew -o ''
bad "plan: standard input ('-') is named more than once" plan - -m -
bad "compare: standard input ('-') is named more than once" compare - scale-les3:60:ew -
bad "simulate: standard input ('-') is named more than once" simulate - --mapping -
bad "plan: unknown option '-z'" plan -z
bad "plan: option '--machine' needs a value" plan --machine
bad "plan: --jitter chooses the scheduler" plan scale-les3:60:ew --jitter 1 -s bl4
bad "plan: --jitter chooses the scheduler" plan scale-les3:60:ew --jitter 1 --split
bad "--jitter 1us: expected a number of microseconds" plan scale-les3:60:ew --jitter 1us
bad "--jitter 1e30: expected a number of microseconds (such as 1.5, at most 1000000)" plan scale-les3:60:ew --jitter 1e30
bad "--jitter 2000000: above 1 s" compare scale-les3:60:ew --jitter 2000000
bad "machine host: the machine has no topology" plan scale-les3:60:ew --jitter 1 -m host
bad "box-optimal: the engines of machine rails-mixed have different rates" \
    plan scale-les3:60:ew -s box-optimal -m rails-mixed
bad "plan: option --machine is given twice" plan -m a -m b x
bad "--format xml: expected text|json|yaml" plan scale-les3:60:ew --format xml
bad "--format json: expected text|csv" compare scale-les3:60:ew --format json
bad "--scheduler best: expected box-optimal|rr1|" plan scale-les3:60:ew -s best -o out/p
bad "no scheduler 'best' (there are: rr1 " draw scale-les3:60:ew -s best -o out/a.svg
bad "no file and no built-in machine 'tofu-x'" plan scale-les3:60:ew -m tofu-x
bad "no file and no built-in pattern 'scale-les4:60:ew'" plan scale-les4:60:ew
bad "no file and no built-in pattern 'scale" plan "scale
two lines"
bad "pattern scale-les3:61:ew: '61' is not a grid" plan scale-les3:61:ew
bad "pattern scale-les3:60:up: 'up' is not a set" plan scale-les3:60:up
bad "pattern scale-les3:60: expected scale-les3:K" plan scale-les3:60
bad "pattern scale-les3:60:ew:1: expected" plan scale-les3:60:ew:1
bad "pattern halo2d:64:h2:8: '64' is not a block" plan halo2d:64:h2:8
bad "pattern halo2d:64x64:2:8: '2' is not a halo width" plan halo2d:64x64:2:8
bad "pattern halo2d:64x64:h0:8: 'h0' is not" plan halo2d:64x64:h0:8
bad "pattern halo2d:64x64:h2:6: '6' neighbors" plan halo2d:64x64:h2:6
bad "pattern halo2d:64x64:h65:8: the halo is wider" plan halo2d:64x64:h65:8
bad "pattern halo2d:64x64:h2:8:0: '0' is not a number" plan halo2d:64x64:h2:8:0
bad "pattern halo3d:9999999999x9999999999x9999999999:h99999999:6: the bytes" \
    plan halo3d:9999999999x9999999999x9999999999:h99999999:6
bad "pattern: scale-les3 needs --grid" pattern scale-les3
bad "no file and no built-in pattern 'nosuch'" pattern nosuch --grid 70
bad "pattern: scale-les3:60:ew has no option --grid" pattern scale-les3:60:ew --grid 70
bad "pattern: halo2d needs --size" pattern halo2d
bad "pattern: halo2d has no option --grid" pattern halo2d --size 8x8 --grid 60
bad "pattern: scale-les3 has no option --width" pattern scale-les3 --grid 60 --width 2
bad "draw: --output out/a.png: expected" draw scale-les3:60:ew -o out/a.png
bad "probe: --compare writes no machine" probe --compare host -o out/m.yaml
bad "probe: of host memory --compare has messages of its own" probe --compare host --longest 70000
bad "probe: standard output has the table" probe --output -
bad "probe: standard output has the table" probe --svg -
bad "probe: --svg out/a.png: expected a name that ends in .svg" probe --svg out/a.png
bad "probe: --output and --svg are both out/a.svg" probe -o out/a.svg --svg out/a.svg
bad "info: one argument too many" info all
bad "help: no command 'frob'" help frob
bad "pattern halo3d:8x8x8:h1:6: put 0: direction '-x' has no route in machine tofu-k" \
    plan halo3d:8x8x8:h1:6 -m tofu-k
RSCHED_CHUNK=many
export RSCHED_CHUNK
bad "RSCHED_CHUNK=many: not a valid value" info
unset RSCHED_CHUNK
RSCHED_CHUNKS=1
export RSCHED_CHUNKS
bad "RSCHED_CHUNKS: there is no such setting" plan scale-les3:60:ew
# What the error refers to, and help, are there all the same.
"$rsched" info --config > stdout 2> stderr
[ $? = 2 ] && [ "$(wc -l < stderr)" = 1 ] && grep -q '^rsched: RSCHED_CHUNKS: ' stderr &&
    grep -q '^RSCHED_CHUNK ' stdout || { echo "FAIL info --config lists no settings"; echo >> failed; }
for command in --help -h help "help plan" "plan --help" "info --help" --version; do
    # shellcheck disable=SC2086
    "$rsched" $command > stdout || { echo "FAIL $command with a wrong setting"; echo >> failed; }
done
unset RSCHED_CHUNKS
for setting in PLANNER=bogus MACHINE=bogus DEVICES=,,: FAILPOINTS=bogus; do
    export "RSCHED_$setting"
    bad "RSCHED_$setting: " plan scale-les3:60:ew
    unset "RSCHED_${setting%%=*}"
done

# --- files that cannot be read
bad "in/none.yaml: No such file" plan in/none.yaml -o out/p
bad "in/: Is a directory" plan in/
bad "in/none.yaml: No such file" plan scale-les3:60:ew -m in/none.yaml
printf '' | pattern "1:1: the document is empty"
printf '\377\376' | pattern "1:1: "
printf '\357\273\277a: [1\n' | pattern "2:1: "
printf 'rsched: pattern/1\nname: \303(\n' | pattern "2:8: "
printf 'a\0b' | pattern "1:2: "
head -c 100000 /dev/zero | tr '\0' '[' | pattern "1:13: nested too deeply"
printf 'a: [1\n' | pattern "2:1: "
printf 'a: "x\\0y"\n' | pattern "1:4: a text must not contain a zero byte"

# --- patterns
cat > in/good-pattern.yaml << 'EOF'
rsched: pattern/1
name: good
puts:
  - {bytes: 8, direction: N}
  - {bytes: 9, direction: S, layout: {offset: 0, block: 3, count: 3, stride: 8}}
EOF
"$rsched" plan in/good-pattern.yaml > /dev/null || echo >> failed
{ printf '\357\273\277' && cat in/good-pattern.yaml; } > in/bom.yaml
"$rsched" plan in/bom.yaml > /dev/null || echo >> failed
edit pattern 's/^rsched.*/rsched: pattern\/2/' "1:9: expected pattern/1, not 'pattern/2'"
edit pattern '1d' "1:1: the key 'rsched: pattern/1' is missing"
edit pattern '2d' "1:1: a pattern has no key 'name'"
edit pattern '3,$d' "1:1: a pattern has no key 'puts'"
edit pattern 's/^name/nmae/' "2:1: unknown key 'nmae' in a pattern"
edit pattern '2p' "3:1: duplicate key 'name'"
edit pattern 's/good/[x]/' "2:7: name must be a value, not a list"
edit pattern 's/good//' "2:6: name has no value"
edit pattern 's/bytes: 8/bytes: -8/' "4:13: bytes '-8': a negative number is not allowed here"
edit pattern 's/bytes: 8/bytes: 8.5/' "4:13: bytes '8.5': expected a whole number"
edit pattern 's/bytes: 8/bytes: 08/' "4:13: bytes '08': a number must not start with 0"
edit pattern 's/bytes: 8/bytes: "8"/' "4:13: bytes '8': expected a number, not a text"
edit pattern 's/bytes: 8/bytes: 18446744073709551616/' "4:13: bytes '18446744073709551616': the number is too large"
edit pattern 's/bytes: 8/bytes: 18446744073709551615/' "5:38: put 1: the bytes of all do not fit"
edit pattern 's/bytes: 8/bytes: 18446744073709551/' " the schedule takes longer than 2 hours"
edit pattern 's/bytes: 8/bytes: 1152921504606846977/' "4:5: put 0: longer than 2^60 bytes"
edit pattern 's/bytes: 8, //' "4:5: a put has no key 'bytes'"
edit pattern 's/, direction: N//' "4:5: a put has no key 'direction'"
edit pattern 's/direction: N/direction: up/' "4:5: put 0: direction 'up' has no route in machine tofu-k"
edit pattern 's/direction: N/direction: a-direction-that-is-much-too-long/' "4:27: a direction longer than 31 bytes"
edit pattern 's/direction: N/direction: N, from: -1/' "4:36: from '-1': a negative"
edit pattern 's/direction: N/direction: N, to: 3000000000/' "4:34: to 3000000000 is above 2147483647"
edit pattern 's/direction: N/direction: N, memory: disk/' "4:38: memory must be host or device, not 'disk'"
edit pattern 's/direction: N/direction: N, device: 1/' "4:38: a device, but not 'memory: device'"
edit pattern 's/direction: N/direction: N, layout: []/' "4:38: layout is an empty list"
edit pattern 's/block: 3/block: 4/' "5:38: put 1: the layout has 12 bytes, but bytes is 9"
edit pattern 's/count: 3/count: 0/' "5:67: count must be at least 1"
edit pattern 's/, stride: 8//' "5:38: a layout with a count above 1 has no key 'stride'"
edit pattern 's/direction: N/&, layout: \&a {offset: 0, block: 8}/' "4:38: anchors are not allowed"
edit pattern 's/direction: N/direction: *a/' "4:27: aliases are not allowed"
edit pattern 's/good/!!str good/' "2:7: tags are not allowed"
edit pattern 's/puts:.*/puts: 3/;4,$d' "3:7: puts must be a list, not a value"
edit pattern '$a---' "6:1: a second document"

# --- machines
cat > in/good-machine.yaml << 'EOF'
rsched: machine/1
name: good
engines: {count: 4, rate: 3850 MB/s, open: 1.0 us, command: 0.2 us}
node: {inject: 13500 MB/s, eject: 13500 MB/s}
exchange: {base: 10 us, per_put: 0.9 us}
links: {N: 4830 MB/s, S: 4830 MB/s}
routes: {N: [N], S: [S]}
direction_order: [N, S]
EOF
"$rsched" plan scale-les3:60:ns -m in/good-machine.yaml > /dev/null || echo >> failed
edit machine 's/machine.1/pattern\/1/' "1:9: expected machine/1"
edit machine 's/count: 4/count: 0/' "3:18: count must be at least 1"
edit machine 's/count: 4/count: 9999/' "3:18: count 9999 is above 1024"
edit machine 's/3850 MB.s/3850/' "3:27: rate '3850': the unit is missing"
edit machine 's/3850 MB.s/3850MB\/s/' "3:27: rate '3850MB/s': expected a rate"
edit machine 's/3850 MB.s/3850 Mb\/s/' "3:27: rate '3850 Mb/s': unknown unit (B/s, kB/s, MB/s, GB/s, TB/s)"
edit machine 's/3850 MB.s/-1 MB\/s/' "3:27: rate '-1 MB/s': a negative value"
edit machine 's/3850 MB.s/0 MB\/s/' "3:27: rate '0 MB/s': a rate of 0"
edit machine 's/3850 MB.s/0.0000001 MB\/s/' "3:27: rate '0.0000001 MB/s': more digits"
edit machine 's/3850 MB.s/70.368744177665 TB\/s/' "3:27: rate '70.368744177665 TB/s': the rate is above 70.368744177664 TB/s"
edit machine 's/^name.*/&\ndescription: "a\\nb"/' "3:14: description has more than one line"
edit machine "s/^name.*/&\\npath: ''/" "3:7: path has no value"
edit machine 's/0.2 us/0.2/' "3:61: command '0.2': the unit is missing"
edit machine 's/0.2 us/0.0000002 us/' "3:61: command '0.0000002 us': more digits"
edit machine 's/0.2 us/200 s/' "3:61: command is above 1 s"
edit machine 's/0.2 us/0.2 min/' "3:61: command '0.2 min': unknown unit (ps, ns, us, ms, s)"
edit machine 's/rate: 3850 MB.s, //' "3:10: engines has no key 'rate'"
edit machine 's/inject/injekt/' "4:8: unknown key 'injekt' in node"
edit machine 's/S: 4830/N: 4830/' "6:23: duplicate key 'N'"
edit machine 's/\[S\]}/[T]}/' "7:22: route 'S' uses the unknown link 'T'"
edit machine 's/\[S\]}/[S, S]}/' "7:25: route 'S' uses the link 'S' twice"
edit machine 's/\[S\]}/S}/' "7:21: a route must be a list, not a value"
edit machine 's/^routes.*/routes: {}/' "7:9: there must be at least one route"
edit machine '$arails: []' "9:8: there must be at least one rail"
edit machine '$arails: {}' "9:8: rails must be a list"
edit machine '$arails: [{}, {}, {}, {}, {}]' "9:8: 5 rails, but 4 engines"
edit machine '$arails: [{links: [T]}]' "9:18: the rail uses the unknown link 'T'"
edit machine '$arails: [{links: [N, N]}]' "9:21: the rail uses the link 'N' twice"
edit machine '$arails: [{}, {links: [N]}]' "9:13: route 'N' uses the link 'N' of the rail already"
edit machine '$arails: [{routes: {up: [N]}}]' "9:19: direction 'up' has no route that the rail could replace"
edit machine '$arails: [{routes: {N: [S, T]}}]' "9:26: route 'N' of the rail uses the unknown link 'T'"
edit machine '$arails: [{speed: 1 MB/s}]' "9:10: unknown key 'speed' in a rail"
edit machine '$arails: [{rate: 1 MB}]' "9:16: rate '1 MB': unknown unit"
edit machine '$atwice: [N, up]' "9:12: direction 'up' has no route"
sed 's/^routes.*/routes: {"*": [N]}/;/^direction_order/d' in/good-machine.yaml > in/good-any.yaml
any() { { cat in/good-any.yaml; echo "$1"; } | machine "$2"; }
any 'twice: [N]' "8:9: direction 'N' has no route of its own; '*' stands for all without one"
any 'direction_order: [S]' "8:19: direction 'S' has no route of its own; '*' stands"
for list in 'twice' 'direction_order'; do
    { cat in/good-any.yaml; echo "$list: [\"*\"]"; } > in/any.yaml
    "$rsched" plan scale-les3:60:ns -m in/any.yaml > /dev/null || { echo "FAIL '*' in $list"; echo >> failed; }
done
# A machine is called by its file, also where its name is that of what it extends.
printf 'rsched: machine/1\nextends: tofu-k\n' > in/child.yaml
bad "pattern halo3d:8x8x8:h1:6: put 0: direction '-x' has no route in machine in/child.yaml" \
    plan halo3d:8x8x8:h1:6 -m in/child.yaml
edit machine '$atwice: [N, N]' "9:12: direction 'N' stands twice"
edit machine '$atwice: N' "9:8: twice"
edit machine '/^routes/d' "1:1: a machine has no key 'routes'"
edit machine 's/\[N, S\]/[N, T]/' "8:22: direction 'T' has no route"
edit machine 's/\[N, S\]/[N, N]/' "8:22: direction 'N' stands twice"
edit machine 's/^name/color: red\nname/' "2:1: unknown key 'color' in a machine"

# --- schedules
"$rsched" plan scale-les3:60:ns -s bl4 -f yaml > in/good-schedule.yaml || echo >> failed
"$rsched" draw in/good-schedule.yaml > /dev/null || echo >> failed
bad "draw: --scheduler is for a pattern, and in/good-schedule.yaml is a schedule" draw in/good-schedule.yaml -s rr1
edit schedule 's/schedule.1/schedule\/9/' "1:9: expected schedule/1"
edit schedule 's/makespan_us: .*/makespan_us: 3/' "5:14: on machine tofu-k makespan_us of these queues is"
edit schedule 's/total_us: .*/total_us: [1, 2]/' "6:11: total_us must be a value, not a list"
edit schedule 's/total_us: .*/total_us: 3/' "6:11: on machine tofu-k total_us of these queues is"
edit schedule 's/bound_us: .*/bound_us: 99999999/' "7:17: lower_bound_us is above the makespan"
edit schedule 's/percent: .*/percent: {a: b}/' "8:14: gap_percent must be a value, not a"
edit schedule 's/percent: .*/percent: much/' "8:14: gap_percent must be a number or null, not 'much'"
edit schedule '16s/engine: [0-9]*/engine: 77/' "16:21: put 0 stands in the queue of engine 0, not 77"
edit schedule '16s/start_us: [0-9.]*/start_us: banana/' "16:34: start_us 'banana': expected a number"
edit schedule '16s/finish_us: [0-9.]*/finish_us: -7/' "16:48: finish_us '-7': expected a number"
edit schedule '16s/path: rdma/path: ""/' "16:64: path must be 'rdma', not ''"
edit schedule 's/machine: .*/machine: tofu-x/' "3:10: no file and no built-in machine"
edit schedule 's/machine: .*/machine: "-"/' "3:10: the machine was standard input; now it has to be given (--machine)"
edit schedule 's/\[0, 1\]/[0, 0]/' "11:9: put 0 stands in two queues"
edit schedule 's/\[0, 1\]/[0]/' "11:3: put 1 stands in no queue"
edit schedule 's/\[0, 1\]/[0, 7]/' "11:9: put 7 does not exist"
edit schedule '11d' "11:3: 3 engines, but machine tofu-k has 4"
edit schedule 's/id: 1,/id: 2,/' "17:10: put 2 stands in the place of put 1"
edit schedule 's/proven: .*/proven: maybe/' "9:9: proven must be true or false, not 'maybe'"
edit schedule 's/proven: .*/&\nsearch: "lazy"/' "10:9: no search ends like this: 'lazy'"
edit schedule '19s/}/, put: 7}/' "19:109: put 7 does not exist"
edit schedule '18s/}/, put: 0}/' "19:5: a put stands behind a part of another one"
edit schedule '19s/bytes: [0-9]*/bytes: 18446744073709551615/;19s/}/, put: 0}/' "19:84: the parts of put 0 are too long together"
bad "plan: box-optimal splits no puts" plan scale-les3:60:ew -s box-optimal --split
bad "--nodes 0: expected a whole number, at least 1" plan scale-les3:60:ew -s exact --nodes 0
bad "--nodes 1e6: expected a whole number" plan scale-les3:60:ew -s exact --nodes 1e6
bad "plan: --nodes is for --scheduler exact" plan scale-les3:60:ew --nodes 5
bad "plan: --nodes is for --scheduler exact" plan scale-les3:60:ew --nodes 5 -s box-optimal
bad "plan: --nodes is for --scheduler exact" plan scale-les3:60:ew --nodes 5 --jitter 1
bad "plan: --seconds is for --scheduler box-optimal" plan scale-les3:60:ew --seconds 5
bad "--seconds 90000: above 86400" plan scale-les3:60:ew -s box-optimal --seconds 90000

echo "$(wc -l < cases) kinds of bad input, $(wc -l < failed) failed"
[ ! -s failed ]
