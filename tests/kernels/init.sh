#!/bin/sh
# init.sh [NAME CAPABILITIES TIERS]...: the first process of the emulated machine, whose arguments the kernel takes from its
# command line. Makes one run after the other and turns the machine off.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
export PATH=/bin
while [ $# -ge 3 ]; do
  /test/run.sh "$1" "$2" "$3"
  shift 3
done
poweroff -f
