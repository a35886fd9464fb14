#!/usr/bin/env bash
# The first process of a node's namespaces: gives it the folders of a machine of its own, then reaps what is orphaned.
# node.sh FOLDER: FOLDER keeps what a machine's disk keeps when its power is cut.
set -euo pipefail
folder=$1

mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
for path in /var/lib/kubelet /var/lib/containerd /var/lib/cni /var/log/pods /var/log/containers; do
  mkdir -p "$folder/disk$path" "$path"
  mount --bind "$folder/disk$path" "$path"
done
touch "$folder/booted"
while true; do
  sleep 3600 &
  wait
done
