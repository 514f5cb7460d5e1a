//! `cargo xtask vm -- COMMAND`: runs a command on this machine's files under Debian's kernel, for
//! what the kernel here does not have.
//!
//! QEMU emulates the machine in software, so it runs anywhere, slowly: about a tenth of the speed.
//! Inside, the command is root and sees this machine's files at their places, with this
//! environment. It may write wherever it likes; what it wrote is gone when the machine ends. Its
//! output and its exit status are passed on. There is no network but what the command makes itself,
//! and no standard input.
//!
//! The kernel comes from Debian's package and is only unpacked, below `target/vm`. A small first
//! file system ([`initramfs`]) holds this very program, which is the machine's first process
//! ([`inside`]).

mod initramfs;
pub(crate) mod inside;
mod kernel;
mod monitor;
mod network;
mod vsock;

use crate::util::step;
use anyhow::{Context, Result, bail};
use kernel::Kernel;
pub(crate) use monitor::Monitor;
pub(crate) use network::{HOST, Network};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vsock::Device;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Processors of the machine; as many as there are here if not said.
    #[arg(long)]
    processors: Option<usize>,
    /// Memory in MiB. What the command writes to files counts.
    #[arg(long, default_value_t = 4096)]
    memory: u32,
    /// Seconds after which the machine is stopped.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Gives the machine a vsock device (`vhost-device-vsock` has to be installed): what it
    /// connects to at port N arrives at the Unix socket PATH_N of this machine.
    #[arg(long, value_name = "PATH")]
    vsock: Option<PathBuf>,
    /// Gives the machine two network interfaces that a cable joins, at places of PCI where the
    /// software device claims to have its first two GPUs.
    #[arg(long)]
    cable: bool,
    /// Where QEMU's monitor listens (QMP), by which the machine can be paused.
    #[arg(long, value_name = "PATH")]
    monitor: Option<PathBuf>,
    /// Gives the machine a device of memory that it shares with this one: the first 64 MiB of this
    /// file, which is made if need be.
    #[arg(long, value_name = "PATH")]
    ivshmem: Option<PathBuf>,
    /// Gives the machine a network, in which it reaches this one's loopback interface at 10.0.2.2.
    #[arg(long)]
    network: bool,
    /// Boots the kernel of this package file of Debian's, instead of the newest.
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<String>,
}

/// What to run, and how: written into the first file system as [`ORDER_FILE`].
#[derive(Serialize, Deserialize)]
struct Order {
    command: Vec<String>,
    folder: PathBuf,
    environment: BTreeMap<String, String>,
    /// Where the unpacked kernel package lies on this machine.
    kernel: PathBuf,
    /// Modules that are needed before this machine's files can be seen, in the order in which to
    /// load them.
    modules: Vec<String>,
    /// Seconds.
    limit: u64,
    network: bool,
}

/// The emulator copies byte by byte where programs and the kernel rely on the processor's own
/// instruction for that.
const CPU: &str = "max,erms=off";

/// How much memory the machine shares, in QEMU's words.
const SHARED: &str = "64M";

const ORDER_FILE: &str = "order.json";
/// How the machine knows this one's files.
const MOUNT_TAG: &str = "files";
/// The channels from inside to outside; the last carries the exit status as text.
const CHANNELS: [&str; 3] = ["stdout", "stderr", "status"];
/// Modules without which the machine sees nothing of this one.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"];

/// Where the interfaces of [`Machine::cable`] are: each below a bridge of its own.
pub(crate) const CABLE: [&str; 2] = ["0000:01:00.0", "0000:02:00.0"];

/// Runs the command; what it ended with, as a shell would say it.
pub(crate) fn run(args: &Args) -> Result<u8> {
    Machine {
        processors: args.processors,
        memory: args.memory,
        limit: args.limit,
        vsock: args.vsock.clone(),
        cable: args.cable,
        monitor: args.monitor.clone(),
        ivshmem: args.ivshmem.clone(),
        network: args.network.then_some(Network::UserMode),
        pid_file: None,
        kernel: args.kernel.clone(),
    }
    .run(&args.command)
}

/// Runs tests inside the machine. One that is skipped there has failed: it has all they need.
pub(crate) fn run_every_test(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let mut skipped = None;
    // What it says is shown at once: a test may hang.
    for line in child.stderr.take().into_iter().flat_map(|said| BufReader::new(said).lines()) {
        let line = line.with_context(|| format!("cannot read what {program} says"))?;
        eprintln!("{line}");
        skipped = skipped.or_else(|| line.starts_with("skipped ").then_some(line));
    }
    let status = child.wait().with_context(|| format!("cannot wait for {program}"))?;
    match skipped {
        _ if !status.success() => bail!("{program} failed ({status})"),
        Some(test) => bail!("in this machine every test can run, and one did not: {test}"),
        None => Ok(()),
    }
}

/// A machine to be.
#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) processors: Option<usize>,
    /// MiB.
    pub(crate) memory: u32,
    /// Seconds.
    pub(crate) limit: u64,
    /// Where connections by vsock arrive, with their port behind it.
    pub(crate) vsock: Option<PathBuf>,
    /// Whether it has a network interface at each of [`CABLE`], joined by a cable.
    pub(crate) cable: bool,
    pub(crate) monitor: Option<PathBuf>,
    /// The file of memory that it shares with this machine.
    pub(crate) ivshmem: Option<PathBuf>,
    /// The network by which it reaches this machine.
    pub(crate) network: Option<Network>,
    /// Where QEMU writes the number of its process.
    pub(crate) pid_file: Option<PathBuf>,
    /// The package file of the kernel that it boots; Debian's newest if not said.
    pub(crate) kernel: Option<PathBuf>,
}

impl Machine {
    /// Boots, runs the command inside with this process's environment, and says what it ended with,
    /// as a shell would.
    pub(crate) fn run(&self, command: &[String]) -> Result<u8> {
        let kernel = Kernel::ensure(self.kernel.as_deref())?;
        // It is not below `target`: paths of sockets must be short.
        let temporary = tempfile::tempdir()?;
        let folder = temporary.path();
        let drivers = self.vsock.iter().map(|_| vsock::DRIVER);
        let drivers = drivers.chain(self.network.map(|_| network::DRIVER));
        let modules = kernel.files(&MODULES.into_iter().chain(drivers).collect::<Vec<_>>())?;
        let order = Order {
            command: command.to_vec(),
            folder: std::env::current_dir().context("there is no current folder")?,
            environment: std::env::vars().collect(),
            kernel: kernel.dir.clone(),
            modules: modules.iter().map(|path| inner_name(path)).collect(),
            limit: self.limit,
            network: self.network.is_some(),
        };
        initramfs::write(&folder.join("first"), &order, &modules)?;
        step(&format!("booting Linux {} in an emulated machine", kernel.release));
        let mut channels = Vec::new();
        for name in CHANNELS {
            let path = folder.join(name);
            let listener = UnixListener::bind(&path)
                .with_context(|| format!("cannot listen at {}", path.display()))?;
            channels.push(thread::spawn(move || pass_on(&listener, name)));
        }
        let vsock = self.vsock.as_ref().map(|forward| Device::start(folder, forward));
        let vsock = vsock.transpose()?;
        let mut qemu = self.start(&kernel, folder, vsock.as_ref())?;
        let deadline = Instant::now() + Duration::from_secs(self.limit);
        let status = loop {
            if let Some(status) = qemu.try_wait().context("cannot wait for the machine")? {
                break status;
            }
            if Instant::now() > deadline {
                let _ = qemu.kill();
                let _ = qemu.wait();
                bail!(
                    "the machine was stopped after {} seconds (`--limit`); {}",
                    self.limit,
                    last_words(folder)
                );
            }
            thread::sleep(Duration::from_millis(50));
        };
        // A machine that failed may not have opened them, and then nobody ever will.
        let said = if status.success() { collect(channels) } else { None };
        match said.and_then(|text| text.trim().parse().ok()) {
            Some(code) => Ok(code),
            None => bail!("the machine ended by itself ({status}); {}", last_words(folder)),
        }
    }

    fn start(&self, kernel: &Kernel, folder: &Path, vsock: Option<&Device>) -> Result<Child> {
        let here = thread::available_parallelism().map_or(1, usize::from);
        let mut qemu = Command::new(kernel::QEMU);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", CPU]);
        qemu.args([
            "-smp",
            &self.processors.unwrap_or(here).to_string(),
            "-m",
            &self.memory.to_string(),
        ]);
        qemu.arg("-kernel").arg(kernel.image()).arg("-initrd").arg(folder.join("first"));
        // What follows the two dashes is for the first process.
        qemu.args(["-append", "console=ttyS0 panic=-1 quiet -- vm-inside"]);
        qemu.arg("-serial").arg(format!("file:{}", folder.join("console").display()));
        let share = format!(
            "local,path=/,mount_tag={MOUNT_TAG},security_model=none,readonly=on,multidevs=remap"
        );
        qemu.args(["-virtfs", &share, "-device", "virtio-serial-pci"]);
        for name in CHANNELS {
            qemu.arg("-chardev")
                .arg(format!("socket,id={name},path={}", folder.join(name).display()));
            qemu.args(["-device", &format!("virtserialport,chardev={name},name={name}")]);
        }
        qemu.args(vsock.iter().flat_map(|device| device.arguments(self.memory)));
        if let Some(file) = &self.ivshmem {
            let file = file.display();
            let backend =
                format!("memory-backend-file,id=shared,share=on,mem-path={file},size={SHARED}");
            qemu.args(["-object", &backend, "-device", "ivshmem-plain,memdev=shared"]);
        }
        qemu.args(self.network.iter().flat_map(Network::arguments));
        if self.cable {
            // A machine with PCI Express, whose buses below bridges are numbered in their order.
            qemu.args(["-machine", "q35"]);
            for end in 1..=CABLE.len() {
                qemu.args(["-device", &format!("pcie-root-port,id=bridge{end},chassis={end}")]);
                qemu.args(["-netdev", &format!("hubport,id=end{end},hubid=0")]);
                qemu.args(["-device", &format!("virtio-net-pci,netdev=end{end},bus=bridge{end}")]);
            }
        }
        if let Some(monitor) = &self.monitor {
            qemu.arg("-qmp").arg(format!("unix:{},server,nowait", monitor.display()));
        }
        if let Some(file) = &self.pid_file {
            qemu.arg("-pidfile").arg(file);
        }
        qemu.stdin(Stdio::null()).stdout(Stdio::null());
        qemu.spawn().with_context(|| format!("cannot start {}", kernel::QEMU))
    }
}

/// The name in the first file system of a file of this one.
fn inner_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes what comes from inside to where it belongs; what came by the last channel is returned.
fn pass_on(listener: &UnixListener, name: &str) -> Result<String> {
    let (mut from, _) = listener.accept().context("the machine has not opened its channels")?;
    let (mut buffer, mut status) = (vec![0; 64 << 10], String::new());
    loop {
        let count = from.read(&mut buffer).context("cannot read what the machine says")?;
        let text = &buffer[..count];
        match name {
            _ if count == 0 => return Ok(status),
            "stdout" => {
                std::io::stdout().write_all(text).and_then(|()| std::io::stdout().flush())?
            }
            "stderr" => std::io::stderr().write_all(text)?,
            _ => status += &String::from_utf8_lossy(text),
        }
    }
}

/// Waits until all has been passed on; what came by the last channel.
fn collect(channels: Vec<JoinHandle<Result<String>>>) -> Option<String> {
    channels.into_iter().map(|channel| channel.join().ok()?.ok()).last()?
}

/// The end of what the kernel said.
fn last_words(folder: &Path) -> String {
    let text = fs::read(folder.join("console")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    match &lines[lines.len().saturating_sub(30)..] {
        [] => "its kernel said nothing".to_owned(),
        last => format!("its kernel's last words:\n{}", last.join("\n")),
    }
}
