//! This machine as a client.

use std::ffi::OsString;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::Command;

use miette::Result;
use outboard_client::link::Config;
use outboard_client::target::{Target, Targets};
use outboard_ranges::own_mappings;
use outboard_transport::unix::Unix;
use outboard_transport::{Endpoint, Transport, host};
use outboard_wire::Code;

use super::finding::{Finding, Report};
use super::link::Variables;
use super::{LIMIT, child, ivshmem, link, machine, program, rdma, vsock};
use crate::at_once::at_once;
use crate::probe::{self, Offer};
use crate::{config, environment, install, started};

pub(super) fn check(given: Option<Targets>) -> Result<Report> {
    let targets = probe::servers(given)?;
    let (reached, started) = started::start(targets.clone())?;
    let mut findings = vec![command()];
    findings.extend(context(&targets));
    let libraries = installation(&mut findings);
    if let Some(folder) = &libraries {
        loader(folder, &mut findings);
        findings.extend(python(folder));
    }
    findings.extend(machine::client_limits());
    let known = started.variables()?;
    let several = targets.servers().len() > 1;
    let asked = at_once(reached.servers(), ask);
    for ((target, named), (mut found, is_there)) in
        reached.servers().iter().zip(targets.servers()).zip(asked)
    {
        // In turn: they would share what is measured.
        if let Some(folder) = libraries.as_deref().filter(|_| is_there) {
            found.extend(measure(target, folder, &known, several));
        }
        let found = found.into_iter();
        findings.extend(found.map(|finding| if several { finding.of(named) } else { finding }));
    }
    Ok(Report::new(format!("This machine as a client of {targets}"), findings))
}

/// What can be found out of a server by asking it, and whether it answers.
fn ask(target: &Target) -> (Vec<Finding>, bool) {
    let mut findings = Vec::new();
    let offer = server(target, &mut findings);
    findings.extend(offer.iter().map(|offer| memory(target, offer)));
    if matches!(target.address, Endpoint::Tcp(_)) {
        findings.push(rdma::of_client(&Config::of_server(target).rdma.allowed));
    }
    if matches!(target.address, Endpoint::Tcp(_) | Endpoint::Vsock(_)) {
        findings.extend(ivshmem::of_client(Config::of_server(target).ivshmem.as_deref()));
    }
    (findings, offer.is_some())
}

/// What the way to a server that answers costs.
fn measure(
    target: &Target,
    libraries: &Path,
    known: &Variables,
    one_of_several: bool,
) -> Vec<Finding> {
    let network = match &target.address {
        Endpoint::Tcp(address) => link::connection(&address.host, address.port),
        Endpoint::Unix(_) | Endpoint::Vsock(_) | Endpoint::Local | Endpoint::Ssh(_) => None,
    };
    link::check(target, libraries, known, network, one_of_several)
}

/// How a program would run on this machine.
pub(super) fn check_program(given: Option<Targets>, line: &[OsString]) -> Result<Report> {
    let targets = probe::servers(given)?;
    let mut findings = vec![command()];
    if let Some(folder) = installation(&mut findings) {
        findings.extend(program::check(line, &folder, targets.servers()));
    }
    let shown: Vec<_> = line.iter().map(|word| word.to_string_lossy()).collect();
    Ok(Report::new(format!("`outboard run -- {}`", shown.join(" ")), findings))
}

fn command() -> Finding {
    let path =
        std::env::current_exe().map_or_else(|_| "?".to_owned(), |path| path.display().to_string());
    Finding::ok("command", format!("outboard {} at {path}", env!("CARGO_PKG_VERSION")))
}

/// By which name the configuration knows the servers.
fn context(targets: &Targets) -> Option<Finding> {
    let name = config::context()?;
    Some(Finding::ok("context", format!("{name}, which is {targets}")))
}

fn installation(findings: &mut Vec<Finding>) -> Option<PathBuf> {
    match install::client_dir() {
        Ok(folder) => {
            findings.push(Finding::ok(
                "libraries",
                format!("the client library is in {}", folder.display()),
            ));
            Some(folder)
        }
        Err(error) => {
            let help = error.help().map(|help| help.to_string()).unwrap_or_default();
            findings.push(Finding::fail("libraries", Code::NotInstalled, error.to_string(), help));
            None
        }
    }
}

/// The child: reports which driver library the loader finds.
pub(super) fn loaded() -> String {
    // SAFETY: libcuda.so.1 is a CUDA driver library; that is what its name says. Nothing of it is
    // called.
    if let Err(error) = unsafe { outboard_driver::Library::load(Path::new("libcuda.so.1")) } {
        return format!("none {error}\n");
    }
    let is_library = |file: &PathBuf| {
        file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libcuda.so"))
    };
    let file = own_mappings()
        .ok()
        .and_then(|mut mapped| mapped.find_map(|mapping| Some(mapping.name).filter(is_library)));
    format!("file {}\n", file.unwrap_or_default().display())
}

/// Which driver library programs get, behind `outboard run` and without it.
fn loader(folder: &Path, findings: &mut Vec<Finding>) {
    let found_by = |trial: &mut Command| {
        let ended = child::run(trial.arg("loader"), LIMIT).map_err(|error| error.to_string())?;
        match ended.problem(LIMIT) {
            Some(problem) => Err(problem),
            None => Ok(ended.stdout.trim().to_owned()),
        }
    };
    let mut behind_run = child::this_program("doctor-trial");
    behind_run.envs(environment::variables(|name| std::env::var_os(name), folder, None));
    let ours = |path: &str| {
        Path::new(path).canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned))
            == folder.canonicalize().ok()
    };
    match found_by(&mut behind_run) {
        Ok(said) if said.strip_prefix("file ").is_some_and(ours) => {
            findings.push(Finding::ok(
                "loader",
                "behind `outboard run`, programs get the client library",
            ));
        }
        Ok(said) | Err(said) => {
            let found =
                format!("behind `outboard run`, programs do not get the client library: {said}");
            let mend = "something stands before LD_LIBRARY_PATH: LD_PRELOAD, or an executable with a run path of its own; unset it";
            findings.push(Finding::fail("loader", Code::NotInstalled, found, mend));
        }
    }
    if let Ok(said) = found_by(&mut child::this_program("doctor-trial"))
        && let Some(path) = said.strip_prefix("file ").filter(|path| !ours(path))
    {
        let finding = Finding::ok("driver", format!("without `outboard run`, programs get {path}"));
        findings.push(finding.expect(
            "a GPU of this machine is used by programs that are started without `outboard run`",
        ));
    }
}

/// The needs of Python's packages beside the library.
fn python(folder: &Path) -> Option<Finding> {
    const SCRIPT: &str = "import importlib.util as u, sys
def there(name):
    try: return u.find_spec(name) is not None
    except Exception: return False
print(sys.version.split()[0], *[n for n in ('torch','triton','jax','cupy','numba','jax_plugins.outboard') if there(n)])";
    let modules = install::python_dir();
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).envs(environment::variables(
        |name| std::env::var_os(name),
        folder,
        modules.as_deref(),
    ));
    let ended = child::run(&mut python, LIMIT).ok()?;
    let mut words = ended.stdout.split_whitespace();
    let version = words.next()?.to_owned();
    let packages: Vec<&str> = words.collect();
    let has = |name: &str| packages.contains(&name);
    let listed: Vec<&str> = packages.iter().copied().filter(|name| !name.contains('.')).collect();
    let found = match listed.is_empty() {
        true => format!("python3 {version}, no framework that uses a GPU"),
        false => format!("python3 {version} with {}", listed.join(", ")),
    };
    if has("jax") && !has("jax_plugins.outboard") {
        let mend = "JAX looks for /dev/nvidia0 before it looks for a driver; the module jax_plugins/outboard answers that. Install Outboard with lib/outboard/python, and do not run Python with -I or -E";
        return Some(Finding::warn(
            "python",
            format!("{found}; JAX will not look for the GPU"),
            mend,
        ));
    }
    let compiler = ["cc", "gcc", "clang"].iter().any(|name| environment::in_path(name));
    if has("triton") && !compiler && std::env::var_os("CC").is_none() {
        let mend = "Triton builds its launchers with a C compiler: install gcc, or set CC";
        return Some(Finding::warn(
            "python",
            format!("{found}; Triton will find no C compiler"),
            mend,
        ));
    }
    Some(Finding::ok("python", found))
}

/// Looks for the server step by step, as far as it gets.
fn server(target: &Target, findings: &mut Vec<Finding>) -> Option<Offer> {
    if let Endpoint::Tcp(address) = &target.address {
        match (address.host.as_str(), address.port).to_socket_addrs() {
            Ok(found) => {
                let found: Vec<String> = found.map(|address| address.ip().to_string()).collect();
                findings
                    .push(Finding::ok("name", format!("{} is {}", address.host, found.join(", "))));
            }
            Err(error) => {
                let error = std::io::Error::new(std::io::ErrorKind::NotFound, error);
                findings.push(Finding::failure(
                    "name",
                    &probe::no_connection(&target.address.to_string(), &error),
                ));
                return None;
            }
        }
    }
    if let Endpoint::Vsock(address) = target.address {
        findings.push(vsock::of_client(address));
    }
    match probe::probe(target) {
        Ok(offer) => {
            let version = offer.platform.driver_version;
            let names: Vec<&str> =
                offer.platform.devices.iter().map(|device| device.name.as_str()).collect();
            let found = format!(
                "outboard {} answers: {}, CUDA {}.{}, {}",
                offer.software,
                offer.platform.driver_name,
                version / 1000,
                version % 1000 / 10,
                names.join(", ")
            );
            findings.push(match offer.software == env!("CARGO_PKG_VERSION") {
                true => Finding::ok("server", found),
                false => Finding::ok("server", found).expect(format!(
                    "this is {}; the two releases understand each other",
                    env!("CARGO_PKG_VERSION")
                )),
            });
            findings.push(encryption(target, &offer));
            Some(offer)
        }
        Err(failure) => {
            let mut finding = Finding::failure("server", &failure);
            if failure.code() == Code::NoAnswer {
                let more = "a firewall that drops packets looks like this: let the port of `outboard serve` (9470) through, here, there and in between";
                finding.mend = finding.mend.map(|mend| format!("{mend}\n{more}"));
            }
            findings.push(finding);
            None
        }
    }
}

fn encryption(target: &Target, offer: &Offer) -> Finding {
    const CHECK: &str = "encryption";
    let on_this_machine =
        offer.local.as_ref().is_some_and(|local| local.host != 0 && local.host == host::id());
    if offer.encrypted {
        Finding::ok(CHECK, "the connection is encrypted with TLS 1.3")
    } else if on_this_machine || matches!(target.address, Endpoint::Unix(_) | Endpoint::Vsock(_)) {
        Finding::ok(CHECK, "the connection does not leave this machine, and is not encrypted")
    } else {
        let mend = "`outboard serve --tls on` encrypts, and OUTBOARD_TLS=on asks for it here";
        Finding::warn(
            CHECK,
            "the connection is not encrypted: others on the way can read and change what is sent",
            mend,
        )
    }
}

/// Whether client and server are on one machine, and if so whether they share memory.
fn memory(target: &Target, offer: &Offer) -> Finding {
    const CHECK: &str = "shared memory";
    if matches!(target.address, Endpoint::Unix(_)) {
        return Finding::ok(
            CHECK,
            "the server is reached by its Unix socket, and shares memory with this machine",
        );
    }
    let Some(local) =
        offer.local.as_ref().filter(|local| local.host != 0 && local.host == host::id())
    else {
        return match &offer.local {
            Some(_) => Finding::ok(CHECK, "the server is on another machine"),
            None => Finding::ok(CHECK, "the server offers none")
                .expect("if it is on this machine, `outboard serve --socket PATH` offers it"),
        };
    };
    if std::env::var("OUTBOARD_TRANSPORT").is_ok_and(|transport| transport == "tcp") {
        let mend =
            "unset OUTBOARD_TRANSPORT (or the setting `transport`) to share memory with the server";
        return Finding::warn(
            CHECK,
            "the server is on this machine, and OUTBOARD_TRANSPORT asks for TCP",
            mend,
        );
    }
    match Unix.connect(&local.path, LIMIT) {
        Ok(_) => Finding::ok(
            CHECK,
            format!("the server is on this machine, and shares memory by {}", local.path),
        ),
        Err(error) => {
            let found = format!(
                "the server is on this machine, but its socket {} cannot be used: {error}",
                local.path
            );
            let mend = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "`outboard serve --socket-access group` or `all` lets other users in; the folder has to let them pass, too"
                }
                std::io::ErrorKind::NotFound => {
                    "in a container, mount its folder at the same path, or set OUTBOARD_SERVER=unix:PATH; `outboard cdi generate` does both"
                }
                _ => "see whether the server's log says more",
            };
            Finding::warn(CHECK, found, mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    #[test]
    fn nothing_listens_ends_the_search() {
        let mut findings = Vec::new();
        let target: Target = "127.0.0.1:1".parse().unwrap();
        assert!(server(&target, &mut findings).is_none());
        let last = findings.last().unwrap();
        assert_eq!((last.level, last.code), (Level::Fail, Some("OB0101")), "{findings:?}");
    }
}
