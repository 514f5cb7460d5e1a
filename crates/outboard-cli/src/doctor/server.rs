//! This machine as a server.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};

use clap::{CommandFactory, FromArgMatches};
use miette::Result;
use outboard_wire::Code;
use outboard_worker::image_cache::{ImageCache, ONE_OWNER};
use outboard_worker::sandbox::Mode;

use super::finding::{Finding, Report};
use super::{access, driver, ivshmem, machine, rdma, vsock};
use crate::driver::Choice;
use crate::failure::Failure;
use crate::probe;
use crate::serve::{self, Args};
use crate::{Cli, config, images, install};

pub(super) fn check(flags: Vec<OsString>) -> Result<Report> {
    let matches = config::of_serve(Cli::command, flags)?;
    let args =
        Args::from_arg_matches(&matches).unwrap_or_else(|error| crate::failure::bad_usage(&error));
    let mut findings = Vec::new();
    devices(&args, &mut findings);
    let listen = serve::with_port(&args.listen);
    findings.extend(port(&listen));
    // A malformed address has been reported already.
    if let Some(address) = listen.to_socket_addrs().ok().and_then(|mut addresses| addresses.next())
    {
        findings.extend(access::check(&args.auth_settings(), address, &args.vsock));
    }
    findings.extend(args.vsock.iter().map(vsock::of_server));
    findings.extend(args.ivshmem.regions().map(|region| ivshmem::of_server(&region)));
    findings
        .extend(args.rdma.used().map(|(allowed, settings)| rdma::of_server(&allowed, settings)));
    findings.push(socket(args.socket.as_deref(), port_of(&listen)));
    findings.push(image_cache(args.image_cache.clone(), args.image_cache_limit));
    findings.extend(machine::server_limits());
    findings.push(machine::sandbox(args.confinement.sandbox == Mode::Strict));
    findings.push(machine::network());
    Ok(Report::new("This machine as a server", findings))
}

fn devices(args: &Args, findings: &mut Vec<Finding>) {
    match crate::driver::choose(args.driver.clone()) {
        Ok(library) => {
            if args.driver.is_none()
                && library.file_name().is_some_and(|name| name == install::CPU_DRIVER)
            {
                let reason = crate::driver::nvidia_devices().map_or_else(
                    |error| error.to_string(),
                    |found| found.err().unwrap_or_default(),
                );
                let found =
                    format!("there is no NVIDIA GPU to offer ({reason}): the software device is");
                findings.push(Finding::warn(
                    "gpu",
                    found,
                    "--driver cpu says that this is meant; `nvidia-smi` has to work for anything else",
                ));
            }
            if args.driver == Some(Choice::Nvidia) || library == Path::new("libcuda.so.1") {
                findings.extend(kernel_module());
            }
            findings.extend(driver::check(&library, args.warm));
        }
        Err(error) => {
            let code =
                error.code().and_then(|code| Code::parse(&code.to_string())).unwrap_or(Code::NoGpu);
            let help = error.help().map(|help| help.to_string()).unwrap_or_default();
            let is_gpu = code == Code::NoGpu;
            let check = if is_gpu { "gpu" } else { "driver" };
            findings.push(Finding::fail(check, code, error.to_string(), help));
            findings.extend(is_gpu.then(kernel_module).flatten());
        }
    }
}

/// NVIDIA's kernel module and its device files.
fn kernel_module() -> Option<Finding> {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let Some(version) = version else {
        let mend = "install NVIDIA's driver and load its module: `modprobe nvidia`";
        return Some(Finding::fail(
            "module",
            Code::NoGpu,
            "NVIDIA's kernel module is not loaded",
            mend,
        ));
    };
    let release = version
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    match std::fs::OpenOptions::new().read(true).write(true).open("/dev/nvidiactl") {
        Ok(_) => Some(Finding::ok(
            "module",
            format!("NVIDIA's kernel module {} is loaded", release.unwrap_or("?")),
        )),
        Err(error) => {
            let mend = "the server's user has to be allowed to use /dev/nvidia*; a container needs them as devices";
            Some(Finding::fail(
                "module",
                Code::NoGpu,
                format!("/dev/nvidiactl cannot be opened: {error}"),
                mend,
            ))
        }
    }
}

fn port_of(listen: &str) -> u16 {
    listen.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0)
}

/// Whether the server can listen, and who can reach it there.
fn port(listen: &str) -> Vec<Finding> {
    let fails = |error: &io::Error, mend: &str| {
        vec![Finding::fail(
            "port",
            Code::CannotListen,
            format!("cannot listen at {listen}: {error}"),
            mend,
        )]
    };
    let addresses: Vec<SocketAddr> = match listen.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            return fails(&error, "write --listen ADDRESS:PORT, with an address of this machine");
        }
    };
    let found = match TcpListener::bind(&addresses[..]) {
        Ok(_) => format!("{listen} is free"),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match already_there(&addresses) {
            Ok(software) => format!("outboard {software} listens at {listen} already"),
            Err(_) => {
                return fails(
                    &error,
                    "another program has the port: `ss -ltnp` shows which; choose another with --listen",
                );
            }
        },
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            return fails(
                &error,
                "no interface of this machine has the address: `ip address` lists them",
            );
        }
        Err(error) => {
            return fails(
                &error,
                "ports below 1024 need a capability; choose another with --listen",
            );
        }
    };
    let finding = Finding::ok("port", found);
    let expect = match addresses.iter().all(|address| address.ip().is_loopback()) {
        true => "only programs on this machine reach it; --listen 0.0.0.0 lets others in",
        false => "firewalls between here and the clients have to let this port through",
    };
    vec![finding.expect(expect)]
}

/// The release of the server that listens there.
fn already_there(addresses: &[SocketAddr]) -> Result<String, Failure> {
    let address =
        addresses.first().copied().unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let host = if address.ip().is_unspecified() {
        "localhost".to_owned()
    } else {
        address.ip().to_string()
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let target = format!("{host}:{}", address.port());
    probe::probe(&probe::server(target.parse().ok())?).map(|offer| offer.software)
}

/// Whether the Unix socket can be made.
fn socket(given: Option<&Path>, port: u16) -> Finding {
    let path = match given {
        Some(path) if path == Path::new("none") => {
            return Finding::ok("socket", "there is none")
                .expect("clients on this machine use TCP, and share no memory with the server");
        }
        Some(path) => path.to_owned(),
        None => outboard_supervisor::usual_socket(port),
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    // The usual folder is made when the server starts.
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    match writable(there) {
        Ok(()) => Finding::ok("socket", format!("{} can be made", path.display())),
        Err(error) => {
            let found = format!(
                "the socket {} cannot be made: {}: {error}",
                path.display(),
                there.display()
            );
            let mend = "--socket PATH chooses a folder that this user may write to; under systemd RuntimeDirectory= makes one; `none` does without";
            match given {
                Some(_) => Finding::fail("socket", Code::CannotListen, found, mend),
                None => Finding::warn("socket", found, mend),
            }
        }
    }
}

fn image_cache(given: Option<PathBuf>, limit: u64) -> Finding {
    const CHECK: &str = "image cache";
    if given.as_deref() == Some(Path::new("off")) {
        return Finding::ok(CHECK, "images are not kept")
            .expect("each run of a program sends its code again");
    }
    let Some(folder) = given.or_else(images::usual_folder) else {
        return Finding::warn(
            CHECK,
            "there is no folder for caches, so images are not kept",
            "--image-cache DIR names one",
        );
    };
    let mend = "--image-cache DIR chooses another folder, `off` says that none is wanted; nothing but the time of starts is affected";
    if let Err(error) = ImageCache::open(&folder, ONE_OWNER, 0).and_then(|_| writable(&folder)) {
        let found = format!("images are not kept: {} cannot be written: {error}", folder.display());
        return Finding {
            code: Some(Code::ImageCacheUnusable.text()),
            ..Finding::warn(CHECK, found, mend)
        };
    }
    match rustix::fs::statvfs(&folder) {
        Ok(room) if room.f_bavail * room.f_frsize < limit.min(1 << 30) => {
            let left = machine::size(room.f_bavail * room.f_frsize);
            Finding::warn(CHECK, format!("{} has {left} left", folder.display()), mend)
        }
        Ok(room) => {
            let left = machine::size(room.f_bavail * room.f_frsize);
            Finding::ok(
                CHECK,
                format!("{}, {left} left, {} at most", folder.display(), machine::size(limit)),
            )
        }
        Err(error) => Finding::warn(
            CHECK,
            format!("the room in {} is not known: {error}", folder.display()),
            mend,
        ),
    }
}

/// Whether a file can be made in a folder: the answer is also right for root on a read-only file
/// system.
fn writable(folder: &Path) -> io::Result<()> {
    tempfile::NamedTempFile::new_in(folder)?.close()
}
