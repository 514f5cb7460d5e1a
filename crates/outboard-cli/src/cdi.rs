//! `outboard cdi generate`: a specification by which container engines put the client into a
//! container.
//!
//! A specification of the Container Device Interface is a file that says what a container gets with
//! a device: mounts and variables. Docker, Podman, containerd and CRI-O read it. Nothing runs when
//! a container starts: the loader finds the libraries by `LD_LIBRARY_PATH`, whatever the image's
//! own cache of libraries has.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use miette::{IntoDiagnostic, Result};
use outboard_client::target::{Target, VARIABLE};
use outboard_transport::{Endpoint, host};
use outboard_wire::Code;
use serde::Serialize;

use crate::config::store;
use crate::failure::Failure;
use crate::probe::{self, Offer};
use crate::{credentials, environment, install, output, started};

/// The oldest version of the specification that has all that is used: names of devices that begin
/// with a digit.
const VERSION: &str = "0.5.0";
/// The path of the installation in the container.
const PREFIX: &str = "/opt/outboard";
/// The folder of the files by which programs there recognise the server and authenticate
/// themselves.
const CREDENTIALS: &str = "/opt/outboard/credentials";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Write a specification for this machine's containers.
    Generate(GenerateArgs),
}

#[derive(clap::Args)]
struct GenerateArgs {
    /// The server. Without it OUTBOARD_SERVER, or the configuration, or this machine.
    #[arg(long)]
    server: Option<Target>,
    /// The name of the devices, VENDOR/CLASS: containers ask for VENDOR/CLASS=all or =INDEX.
    #[arg(long, default_value = "outboard.dev/gpu", value_name = "VENDOR/CLASS", value_parser = kind)]
    kind: String,
    /// Further folders of libraries for programs in the container. The image's LD_LIBRARY_PATH is
    /// replaced: name its folders here.
    #[arg(
        long,
        default_value = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        value_name = "FOLDERS"
    )]
    library_path: String,
    /// The specification always contains what programs in containers need to recognise the server.
    /// It contains their own credentials only if flags here name them: every user who may start a
    /// container with the device has them then.
    #[command(flatten)]
    credentials: credentials::Args,
    /// Leave PYTHONPATH as the image has it. JAX then does not look for a GPU.
    #[arg(long)]
    without_python: bool,
    /// Write to this file, such as /etc/cdi/outboard.json, instead of standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Specification {
    cdi_version: &'static str,
    kind: String,
    container_edits: Edits,
    devices: Vec<Device>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Default, Serialize)]
struct Edits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Mount>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: String,
    container_path: String,
    options: [&'static str; 4],
}

impl Mount {
    fn new(host: &Path, container: impl Into<String>) -> Result<Mount, Failure> {
        let real = host.canonicalize().map_err(|error| Failure::file("find", host, &error))?;
        let host_path = real.to_str().ok_or_else(|| {
            let message =
                format!("{} is not a path of text, which a specification needs", real.display());
            Failure::new(Code::FileUnusable, message, "install Outboard elsewhere")
        })?;
        Ok(Mount {
            host_path: host_path.to_owned(),
            container_path: container.into(),
            options: ["ro", "nosuid", "nodev", "bind"],
        })
    }
}

pub(crate) fn cdi(args: Args) -> Result<()> {
    let Action::Generate(args) = args.action;
    args.credentials.set();
    let server = probe::server(args.server.clone())?;
    started::refuse(std::slice::from_ref(&server))?;
    let specification = specification(&args, server)?;
    let text = serde_json::to_string_pretty(&specification).into_diagnostic()? + "\n";
    match &args.output {
        None => output::print(&text),
        Some(file) => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            let made = folder.map_or(Ok(()), std::fs::create_dir_all);
            made.map_err(|error| Failure::file("write", file, &error))?;
            store::output(file, &text)?;
            eprintln!(
                "{}: containers get the devices with --device {}=all",
                file.display(),
                args.kind
            );
            Ok(())
        }
    }
}

fn specification(args: &GenerateArgs, server: Target) -> Result<Specification> {
    let (address, offer) = reach(&server)?;
    let mut edits = Edits { env: environment(args), mounts: installation(args)? };
    trust(&args.credentials, |name| std::env::var_os(name), &mut edits)?;
    if let Endpoint::Unix(path) = &address {
        // The folder, as the socket is made anew when the server starts.
        let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
        edits.mounts.push(Mount::new(folder, folder.to_string_lossy())?);
    }
    let device = |name: String, devices: Vec<u32>| {
        let target = Target { address: address.clone(), devices, invitation: None };
        Device {
            name,
            container_edits: Edits {
                env: vec![format!("{VARIABLE}={target}")],
                mounts: Vec::new(),
            },
        }
    };
    let mut devices = vec![device("all".to_owned(), server.devices.clone())];
    let count = offer.map_or(0, |offer| offer.platform.devices.len() as u32);
    let single = if server.devices.is_empty() { (0..count).collect() } else { server.devices };
    devices.extend(single.into_iter().map(|index| device(index.to_string(), vec![index])));
    Ok(Specification {
        cdi_version: VERSION,
        kind: args.kind.clone(),
        container_edits: edits,
        devices,
    })
}

/// The address by which a container reaches the server, and the server's offer, if it answers now.
fn reach(server: &Target) -> Result<(Endpoint, Option<Offer>), Failure> {
    let loopback = match &server.address {
        Endpoint::Tcp(address) => is_loopback(&address.host),
        Endpoint::Unix(_) | Endpoint::Vsock(_) | Endpoint::Local | Endpoint::Ssh(_) => false,
    };
    match probe::probe(server) {
        Ok(offer) => {
            // A server in a container is on this machine, and its socket is not.
            let is_here = |path: &str| Path::new(path).exists();
            let local = offer.local.as_ref().filter(|local| {
                local.host != 0 && local.host == host::id() && is_here(&local.path)
            });
            let address = match (&server.address, local) {
                // Its own loopback interface is all that a container sees of this one.
                (Endpoint::Tcp(_), Some(local)) => {
                    format!("unix:{}", local.path).parse().unwrap_or(server.address.clone())
                }
                _ if loopback => return Err(unreachable(server)),
                (address, _) => address.clone(),
            };
            Ok((address, Some(offer)))
        }
        Err(_) if loopback => Err(unreachable(server)),
        Err(failure) => {
            eprintln!("{failure}: the specification has the device `all` only");
            Ok((server.address.clone(), None))
        }
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn unreachable(server: &Target) -> Failure {
    let message = format!("a container cannot reach {server}: that is the container itself there");
    let help = "start the server on this machine with a socket first (`outboard serve`), name it by unix:/PATH, or by an address of this machine's network";
    Failure::new(Code::BadAddress, message, help)
}

fn environment(args: &GenerateArgs) -> Vec<String> {
    let client = format!("{PREFIX}/lib/outboard/client");
    let libraries = if args.library_path.is_empty() {
        client.clone()
    } else {
        format!("{client}:{}", args.library_path)
    };
    let mut variables =
        vec![format!("LD_LIBRARY_PATH={libraries}"), format!("TRITON_LIBCUDA_PATH={client}")];
    let stand_ins = environment::stand_ins(|name| std::env::var_os(name));
    let stand_ins: Vec<String> = stand_ins.map(|file| format!("{client}/{file}")).collect();
    if !stand_ins.is_empty() {
        variables.push(format!("LD_PRELOAD={}", stand_ins.join(":")));
    }
    if !args.without_python && install::python_dir().is_some() {
        variables.push(format!("PYTHONPATH={PREFIX}/lib/outboard/python"));
    }
    variables
}

fn installation(args: &GenerateArgs) -> Result<Vec<Mount>> {
    let command = std::env::current_exe().into_diagnostic()?;
    let mut mounts = vec![
        Mount::new(&install::client_dir()?, format!("{PREFIX}/lib/outboard/client"))?,
        Mount::new(&command, format!("{PREFIX}/bin/outboard"))?,
    ];
    if let (false, Some(folder)) = (args.without_python, install::python_dir()) {
        mounts.push(Mount::new(&folder, format!("{PREFIX}/lib/outboard/python"))?);
    }
    Ok(mounts)
}

/// By what programs in the container recognise the server, and what they show. The specification
/// itself holds no secret: everybody may read it.
fn trust(
    given: &credentials::Args,
    variable: impl Fn(&str) -> Option<OsString>,
    edits: &mut Edits,
) -> Result<(), Failure> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    for name in ["OUTBOARD_TLS_FINGERPRINT", "OUTBOARD_TLS"] {
        edits.env.extend(variable(name).map(|value| format!("{name}={}", value.to_string_lossy())));
    }
    let mut file = |name: &str, host: &Path, inside: &str| {
        let inside = format!("{CREDENTIALS}/{inside}");
        edits.env.push(format!("{name}={inside}"));
        Mount::new(host, inside).map(|mount| edits.mounts.push(mount))
    };
    if let Some(authorities) = variable("OUTBOARD_TLS_CA") {
        file("OUTBOARD_TLS_CA", Path::new(&authorities), "authorities.pem")?;
    }
    if let Some((certificate, key)) = given.own() {
        file("OUTBOARD_TLS_CERT", certificate, "client.crt")?;
        file("OUTBOARD_TLS_KEY", key, "client.key")?;
    }
    if let Some((lease, key)) = given.leased() {
        file("OUTBOARD_LEASE", lease, "lease")?;
        file("OUTBOARD_LEASE_KEY", key, "lease.key")?;
    }
    match given.token_file() {
        Some(token) => file("OUTBOARD_TOKEN_FILE", token, "token")?,
        None if ["OUTBOARD_TOKEN", "OUTBOARD_TOKEN_FILE"]
            .into_iter()
            .any(|name| variable(name).is_some()) =>
        {
            eprintln!(
                "containers get no token: name its file with --token-file, if whoever starts one may have it"
            );
        }
        None => {}
    }
    Ok(())
}

/// Checks the name of a kind of device as the specification has it.
fn kind(text: &str) -> Result<String, String> {
    let word = |word: &str, others: &[char]| {
        word.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && word.ends_with(|letter: char| letter.is_ascii_alphanumeric())
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || others.contains(&letter))
    };
    match text.split_once('/') {
        Some((vendor, class)) if word(vendor, &['_', '-', '.']) && word(class, &['_', '-']) => {
            Ok(text.to_owned())
        }
        _ => Err(format!("`{text}` is not VENDOR/CLASS, such as outboard.dev/gpu")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_as_the_specification_has_them() {
        for text in ["outboard.dev/gpu", "a/b", "example.org/far-gpu", "A_1/c_2"] {
            assert!(kind(text).is_ok(), "{text}");
        }
        for text in ["", "gpu", "/gpu", "a/", "1a/b", "a./b", "a/b.c", "a/b/c", "a b/c"] {
            assert!(kind(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_loopback_interface_is_of_no_use_in_a_container() {
        assert!(["localhost", "127.0.0.1", "127.1.2.3", "::1"].into_iter().all(is_loopback));
        assert!(!["gpu1", "10.0.0.1", "0.0.0.0"].into_iter().any(is_loopback));
        let error = reach(&"127.0.0.1:1".parse().unwrap()).expect_err("nothing listens there");
        assert_eq!(error.code(), Code::BadAddress);
    }
}
