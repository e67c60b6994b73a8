#!/bin/bash
# Runs a command again and again until it has finished, or ends in a way that another start would not change. Beside
# each process of a training, it starts them all anew after one is lost: the others notice, and exit with 75.
#
#   bash again.sh transformer-jax train --config=... --workdir=... --coordinator=auto
#
# On every machine of a TPU pod, with a file system that all of them share at /shared:
#
#   gcloud compute tpus tpu-vm scp docs/launch/again.sh POD: --zone=ZONE --worker=all
#   gcloud compute tpus tpu-vm ssh POD --zone=ZONE --worker=all --command="nohup bash again.sh \
#     transformer-jax train --config=wmt_big --workdir=/shared/runs/big --coordinator=auto \
#     --config.mesh.fsdp=4 --config.data.rows_divisible_by=16 > train.out 2>&1 < /dev/null &"
#
# SIGTERM to the loops ends them, once their processes have saved the same step:
#
#   gcloud compute tpus tpu-vm ssh POD --zone=ZONE --worker=all --command="pkill -TERM -f '[a]gain.sh'"

ending=
process=
trap 'ending=1; [[ $process ]] && kill -TERM "$process"' TERM INT

for start in {1..100}; do
    "$@" &
    process=$!
    wait "$process"
    code=$?
    while kill -0 "$process" 2> /dev/null; do # the signal ended the waiting, not the process
        wait "$process"
        code=$?
    done
    process=
    # Finished; the user's mistake; diverged; the disk is full: another start would change nothing.
    case $code in 0 | 2 | 70 | 74) exit "$code" ;; esac
    [[ $ending ]] && exit "$code"
    echo "again.sh: start $start of 100 ended with exit code $code" >&2
    sleep "${PAUSE:-10}"
    [[ $ending ]] && exit "$code"
done
exit "$code"
