//! What happens in the machine: the kernel serves a folder, and the tests find it mounted.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::packages;
use crate::util::{run, step};
use crate::vm::run_every_test;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program with the tests.
    program: String,
}

/// The folder that is served, by the name of its disk, and where client and server have mounted it.
const SERVED: &str = "/run/served";
const DISK: &str = "served-disk";
const MOUNTS: [&str; 2] = ["/run/clients-mount", "/run/servers-mount"];
const SOURCE: &str = "127.0.0.1:/";
/// Stops and starts the server.
const STOP: &str = "/run/stop-nfs";
const START: &str = "/run/start-nfs";
/// What the tests get: folder, disk, source, mounts and scripts.
const PLACES: &str = "OUTBOARD_TEST_NFS";

/// Clients that were there before are not waited for.
const START_SCRIPT: &str = "set -e
echo 10 > /proc/fs/nfsd/nfsv4gracetime
rpc.nfsd --no-nfs-version 3 4
echo Y > /proc/fs/nfsd/v4_end_grace || true
";

pub(crate) fn run_all(args: &Args) -> Result<()> {
    // What is written here is gone with the machine.
    for folder in fs::read_dir(packages()).context("cannot list the packages")?.flatten() {
        if folder.path().is_dir() {
            // `/sbin` is a link.
            let (from, to) = (folder.path().join("."), Path::new("/").join(folder.file_name()));
            run(Command::new("cp").arg("-a").arg(from).arg(to.join("")))?;
        }
    }
    run(&mut Command::new("ldconfig"))?;
    step("serving a folder by NFS");
    for module in ["nfsd", "nfsv4"] {
        run(Command::new("modprobe").arg(module))?;
    }
    for folder in [SERVED, MOUNTS[0], MOUNTS[1], "/var/lib/nfs/v4recovery", "/run/rpc_pipefs"] {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {folder}"))?;
    }
    let export =
        format!("{SERVED} 127.0.0.1(rw,fsid=0,no_root_squash,insecure,no_subtree_check)\n");
    fs::write("/etc/exports", export).context("cannot write what is served")?;
    fs::write(STOP, "exec rpc.nfsd 0\n").context("cannot write a script")?;
    fs::write(START, START_SCRIPT).context("cannot write a script")?;
    let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for command in [
        "ip link set lo up",
        &format!("mount -t tmpfs {DISK} {SERVED}"),
        // To the server, both mounts are one client, from which it takes no delegation back.
        "sysctl -qw fs.leases-enable=0",
        "mount -t nfsd nfsd /proc/fs/nfsd",
        "exportfs -a",
        "rpc.mountd --no-nfs-version 3",
        &format!("sh {START}"),
    ] {
        let words = words(command);
        run(Command::new(&words[0]).args(&words[1..]))?;
    }
    for at in MOUNTS {
        let options = "vers=4.2,nosharecache,hard,timeo=20";
        run(Command::new("mount").args(["-t", "nfs4", "-o", options, SOURCE, at]))?;
    }
    let [clients, servers] = MOUNTS;
    let places = format!("{SERVED} {DISK} {SOURCE} {clients} {servers} {STOP} {START}");
    assert!(Path::new(&args.program).exists(), "{}", args.program);
    run_every_test(
        Command::new(&args.program)
            .args(["nfs::", "--test-threads", "1", "--nocapture"])
            .env(PLACES, places)
            .env("OUTBOARD_TEST_DRIVER", "cpu"),
    )
}
