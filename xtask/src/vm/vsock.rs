//! A vsock device as a program of this machine: rust-vmm's `vhost-device-vsock`. It forwards what
//! the machine connects to as Firecracker and Cloud Hypervisor do: to a Unix socket for each port.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The machine's driver of such a device.
pub(super) const DRIVER: &str = "vmw_vsock_virtio_transport";
const PROGRAM: &str = "vhost-device-vsock";
/// The number that the machine gets.
const CID: u32 = 4;
/// How long the program may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The program, which ends with this value.
pub(super) struct Device {
    program: Child,
    socket: PathBuf,
}

impl Device {
    /// Starts it. What the machine connects to at port N arrives at `forward` with `_N` behind it.
    pub(super) fn start(folder: &Path, forward: &Path) -> Result<Device> {
        let socket = folder.join("vsock");
        let (shown, forward) = (socket.display(), forward.display());
        let mut command = Command::new(PROGRAM);
        command.arg("--vm").arg(format!("guest-cid={CID},socket={shown},uds-path={forward}"));
        let program = command.stdin(Stdio::null()).spawn().with_context(|| {
            format!("cannot start `{PROGRAM}`: `cargo install {PROGRAM}` installs it")
        })?;
        let mut device = Device { program, socket };
        let started = Instant::now();
        while !device.socket.exists() {
            if let Some(status) = device.program.try_wait().context("cannot wait for it")? {
                bail!("`{PROGRAM}` has ended ({status})");
            }
            if started.elapsed() > PATIENCE {
                bail!("`{PROGRAM}` does not listen at {}", device.socket.display());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(device)
    }

    /// What QEMU needs to know: the program maps the machine's memory, of `memory` MiB.
    pub(super) fn arguments(&self, memory: u32) -> [String; 8] {
        [
            "-object".to_owned(),
            format!("memory-backend-memfd,id=memory,size={memory}M,share=on"),
            "-machine".to_owned(),
            "memory-backend=memory".to_owned(),
            "-chardev".to_owned(),
            format!("socket,id=vsock,path={}", self.socket.display()),
            "-device".to_owned(),
            "vhost-user-vsock-pci,chardev=vsock".to_owned(),
        ]
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
