//! The first process of a machine: shows the outer machine's files at their places, runs the
//! command there, and ends the machine.

use super::{MOUNT_TAG, ORDER_FILE, Order, network};
use anyhow::{Context, Result, bail};
use rustix::fs::CWD;
use rustix::mount::{MountFlags, mount, mount_bind, mount_move};
use rustix::process::{WaitOptions, chroot, wait};
use rustix::system::{RebootCommand, finit_module, reboot};
use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Channels must have appeared after this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the order that the first file system holds. Returns never, if this is the first process of
/// a machine.
pub(crate) fn run() -> Result<()> {
    if std::process::id() != 1 {
        bail!("this is what `cargo xtask vm` runs inside its machine");
    }
    if let Err(error) = carry_out() {
        // The console is what the outer side shows when no exit status comes.
        eprintln!("error: {error:#}");
    }
    reboot(RebootCommand::PowerOff).context("cannot end the machine")
}

fn carry_out() -> Result<()> {
    for (kind, at) in
        [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/upper")]
    {
        mount_new(kind, at)?;
    }
    let order = fs::read(Path::new("/").join(ORDER_FILE)).context("there is no order")?;
    let order: Order = serde_json::from_slice(&order).context("cannot understand the order")?;
    stop_after(order.limit);
    order.modules.iter().try_for_each(|module| load(&Path::new("/modules").join(module)))?;
    show_files(&order.kernel)?;
    let [stdout, stderr, mut status] = super::CHANNELS.map(channel);
    let code = run_command(&order, stdout?, stderr?);
    let text = code.as_ref().map_or_else(|_| "127".to_owned(), u8::to_string);
    std::io::Write::write_all(
        status.as_mut().map_err(|error| anyhow::anyhow!("{error:#}"))?,
        text.as_bytes(),
    )?;
    code.map(drop)
}

fn mount_new(kind: &str, at: &str) -> Result<()> {
    mount(kind, at, kind, MountFlags::empty(), None)
        .with_context(|| format!("cannot mount {kind} on {at}"))
}

/// Ends the machine after a while, even if the outer side does not live to do so.
fn stop_after(seconds: u64) {
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(seconds));
        let _ = reboot(RebootCommand::PowerOff);
    });
}

fn load(module: &Path) -> Result<()> {
    let file = File::open(module).with_context(|| format!("cannot open {}", module.display()))?;
    finit_module(&file, c"", 0).with_context(|| format!("cannot load {}", module.display()))
}

/// Puts the outer machine's files below memory that takes what is written, and makes that the root.
fn show_files(kernel: &Path) -> Result<()> {
    let options = CString::new("trans=virtio,version=9p2000.L,msize=512000,cache=loose")
        .context("no zeros")?;
    mount(MOUNT_TAG, "/lower", "9p", MountFlags::RDONLY, options.as_c_str())
        .context("cannot mount the files")?;
    ["/upper/files", "/upper/work"]
        .iter()
        .try_for_each(fs::create_dir)
        .context("cannot prepare the files")?;
    let options = CString::new("lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work")
        .context("no zeros")?;
    mount("overlay", "/files", "overlay", MountFlags::empty(), options.as_c_str())
        .context("cannot overlay files")?;
    // Where programs and the kernel itself look for modules.
    let modules = Path::new("/files/lib/modules");
    fs::create_dir_all(modules).context("cannot create the folder of modules")?;
    let kernel = Path::new("/lower").join(kernel.strip_prefix("/").unwrap_or(kernel));
    mount_bind(kernel.join("lib/modules"), modules).context("cannot show the modules")?;
    for name in ["/dev", "/proc", "/sys"] {
        mount_move(name, format!("/files{name}").as_str())
            .with_context(|| format!("cannot move {name}"))?;
    }
    // The kernel's own helpers share this root, and so find `modprobe`.
    chroot("/files").context("cannot enter the files")?;
    std::env::set_current_dir("/").context("cannot enter the files")?;
    mount_new("tmpfs", "/run")?;
    for (kind, at) in [("devpts", "/dev/pts"), ("tmpfs", "/dev/shm"), ("cgroup2", "/sys/fs/cgroup")]
    {
        fs::create_dir_all(at).with_context(|| format!("cannot create {at}"))?;
        mount_new(kind, at)?;
    }
    for (name, target) in
        [("fd", "/proc/self/fd"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")]
    {
        let _ = rustix::fs::symlinkat(target, CWD, format!("/dev/{name}").as_str());
    }
    Ok(())
}

/// The channel of a name, which may still be about to appear.
fn channel(name: &str) -> Result<File> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(path) = port(name) {
            let file = File::options().write(true).open(&path);
            return file.with_context(|| format!("cannot open {}", path.display()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("the machine has no channel `{name}`")
}

fn port(name: &str) -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let mut names = ports.flatten().map(|port| port.file_name());
    let found = names.find(|port| {
        let path = Path::new("/sys/class/virtio-ports").join(port).join("name");
        fs::read_to_string(path).is_ok_and(|text| text.trim() == name)
    });
    Some(Path::new("/dev").join(found?))
}

/// Runs the command to its end; its exit status, as a shell would say it. What it leaves behind
/// meanwhile is cleaned up.
fn run_command(order: &Order, stdout: File, stderr: File) -> Result<u8> {
    // Programs expect the loopback interface to be there.
    let _ = Command::new("ip").args(["link", "set", "lo", "up"]).stdin(Stdio::null()).status();
    if order.network {
        network::join()?;
    }
    let (program, args) = order.command.split_first().context("there is no command")?;
    let mut complaints = stderr.try_clone().context("cannot copy a channel")?;
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&order.environment).current_dir(&order.folder);
    let child = match command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn() {
        Ok(child) => child,
        Err(error) => {
            let _ = std::io::Write::write_all(
                &mut complaints,
                format!("{program}: {error}\n").as_bytes(),
            );
            return Ok(127);
        }
    };
    loop {
        let (ended, status) = match wait(WaitOptions::empty()) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error).context("cannot wait for the command"),
        };
        if ended.as_raw_nonzero().get().cast_unsigned() == child.id() {
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            return Ok(status
                .exit_status()
                .or(signal)
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1));
        }
    }
}
