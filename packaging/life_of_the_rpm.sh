# The life of the .rpm where systemd runs: sourced by packaging/test, which brings `check`, `fresh_root` and the packages.
#
# A container (systemd-nspawn, root, no network but its own loopback) of Debian with rpm and an empty rpm database. Debian's
# own libraries are made known to it as a package, so that the requirements of the .rpm are checked and not waived.

boot_with_rpm() {
    fresh_root rpm || return
    # As on Fedora and RHEL: nothing is enabled that nobody asked for.
    mkdir -p "$ROOT/usr/lib/systemd/system-preset"
    echo 'disable *' >"$ROOT/usr/lib/systemd/system-preset/99-default-disable.preset"
    systemd-nspawn --quiet --directory="$ROOT" --boot --register=no --keep-unit --private-network --console=pipe \
        </dev/null >"$WORK/console" 2>&1 &
    NSPAWN=$!
    within 60 booted
}
booted() {
    INIT=$(pgrep -P "$NSPAWN" -x systemd) && [[ "$(guest systemctl is-system-running)" =~ running|degraded ]]
}
halt_guest() {
    # The bus goes before its answer comes.
    guest systemctl poweroff 2>/dev/null
    wait "$NSPAWN"
    NSPAWN=
}
# rpm with nothing to tell but what it should: Debian's own words about rpm, a new user, a default file put aside.
rpm_there() {
    local status=0
    guest rpm "$@" >"$WORK/rpm-said" 2>&1 || status=$?
    cat "$WORK/rpm-said"
    [ "$status" -eq 0 ] && ! grep -vE '^rpm: |^Creating (user|group) |^Removed "|^warning: .*\.rpm(new|save)$' "$WORK/rpm-said"
}
guest() { nsenter -t "$INIT" -a /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }
# kcat of this machine at the broker in there.
kcat_there() { timeout 60 nsenter -t "$INIT" -n kcat -b 127.0.0.1:9092 "$@"; }
within() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.2
    done
}

# What this C library brings, by rpm's own generator.
system_as_package() {
    local folder=$WORK/system lib
    mkdir -p "$folder/files"
    for lib in libc.so.6 libm.so.6 libgcc_s.so.1 ld-linux-x86-64.so.2; do
        cp -L "$ROOT/lib/x86_64-linux-gnu/$lib" "$folder/files/" || return
    done
    cat >"$folder/system.spec" <<SPEC
Name: system
Version: 1
Release: 1
Summary: The libraries of this system
License: none
Provides: systemd, /bin/sh, rtld(GNU_HASH)
%description
.
%install
install -D -m 755 -t %{buildroot}/opt/system $folder/files/*
%files
/opt/system
SPEC
    rpmbuild -bb --quiet --define "_topdir $folder" --define '__strip /bin/true' "$folder/system.spec" &&
        cp "$folder"/RPMS/*/system-1-1.*.rpm "$ROOT/root/system.rpm" && guest rpm -i /root/system.rpm
}

# The same package under a later version, with a line more in its configuration: from a tree that differs in these.
next_rpm() {
    local later=$WORK/later tools
    tools=$(realpath "${CARGO_TARGET_DIR:-target}/packaging-tools/bin")
    mkdir "$later" && ln -s "$PWD"/* "$later/" && rm "$later/packaging" "$later/Cargo.toml" && cp -r packaging "$later/packaging" &&
        sed 's/^version = "0.*"$/version = "9.9.9"/' Cargo.toml >"$later/Cargo.toml" &&
        echo '# a later default' >>"$later/packaging/.stage/server.properties" &&
        (cd "$later" && "$tools/cargo-generate-rpm" generate-rpm --output "$ROOT/root/next.rpm")
}

life_of_the_rpm() {
    check "a Debian with rpm boots in a container" boot_with_rpm || return
    cp "$RPM" "$ROOT/root/first.rpm"
    check "what the system brings is known to rpm" system_as_package
    check "a later .rpm is built" next_rpm
    rpm_installs
    rpm_serves
    rpm_upgrades
    rpm_goes
    halt_guest
}

rpm_installs() {
    check "the .rpm installs, its requirements met" rpm_there -i /root/first.rpm
    check "every file is as it says, with its owner" silent guest rpm -V seawall
    check "the user is a system user without a shell" is_system_user
    check "the data directory is that user's" test "$(guest stat -c %U:%G:%a /var/lib/seawall)" = seawall:seawall:750
    check "its group reads the configuration, nobody else does" test "$(guest stat -c %U:%G:%a /etc/seawall/server.properties)" = root:seawall:640
    check "it is neither enabled nor started where the presets say no" guest sh -c '! systemctl is-enabled -q seawall && ! systemctl is-active -q seawall'
}

rpm_serves() {
    check "it starts by systemctl enable --now" guest systemctl enable -q --now seawall
    check "a client produces" produce_there
    check "and reads" holds_there
    guest sh -c 'echo num.partitions=7 >>/etc/seawall/server.properties'
}
produce_there() { seq 100 | kcat_there -P -t life -X acks=all; }
holds_there() { kcat_there -C -t life -o beginning -e -q | cmp - <(seq 100); }
starts_there() { guest journalctl -u seawall -o cat | grep -c '^Started '; }
active_there() { guest systemctl is-active -q seawall; }
started_times_there() { local now; now=$(starts_there); echo "$now starts"; [ "$now" = "$1" ]; }

rpm_upgrades() {
    local before
    before=$(starts_there)
    check "an upgrade goes through" rpm_there -U /root/next.rpm
    check "and restarts the running service once" started_times_there $((before + 1))
    check "which is active" active_there
    check "with its data" holds_there
    check "and its configuration" guest grep -qx num.partitions=7 /etc/seawall/server.properties
    check "the new default file lies beside it, as closed" test "$(guest stat -c %U:%G:%a /etc/seawall/server.properties.rpmnew)" = root:seawall:640
    guest systemctl stop seawall
    check "an upgrade of a stopped service goes through" rpm_there -U --oldpackage /root/first.rpm
    check "and leaves it stopped" guest sh -c '! systemctl is-active -q seawall'
    check "and enabled" guest systemctl is-enabled -q seawall
    guest systemctl start seawall
}

rpm_goes() {
    local data=/var/lib/seawall/life/0
    check "it is active before it goes" active_there
    check "it goes" rpm_there -e seawall
    check "and is stopped and disabled" guest sh -c '! systemctl is-active -q seawall && ! test -e /etc/systemd/system/multi-user.target.wants/seawall.service'
    check "the stop was clean" guest sh -c 'journalctl -u seawall -o cat | tail -n 20 | grep -q "stopped cleanly"'
    check "the data and its user stay" guest sh -c "test -d $data && [ \"\$(stat -c %U $data)\" = seawall ]"
    check "a changed configuration stays as .rpmsave" guest grep -qx num.partitions=7 /etc/seawall/server.properties.rpmsave
    check "nothing else stays" guest sh -c '! ls /usr/bin/seawall /usr/lib/systemd/system/seawall.service /usr/lib/sysusers.d/seawall.conf /usr/lib/tmpfiles.d/seawall.conf 2>/dev/null'
    check "it installs again over what was kept" rpm_there -i /root/first.rpm
    check "and starts" guest systemctl start seawall
    check "with its data" holds_there
}
