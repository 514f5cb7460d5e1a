//! Flags that choose a program's devices, and the variables that they set: `outboard run` sets
//! them, `outboard env` prints them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use miette::Result;
use outboard_client::own_settings::{self, SAY_LOST};
use outboard_client::target::{Target, Targets, VARIABLE};

use crate::failure::Failure;
use crate::started::Started;
use crate::{config, credentials, environment, install, library, probe};

/// How long the client waits in a server's queue.
const QUEUE: &str = "OUTBOARD_QUEUE_TIMEOUT";

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The servers and their devices, HOST[:PORT][/INDEX],…, unix:PATH[/INDEX],…, local[/INDEX] for
    /// this machine's own, vsock:host[:PORT][/INDEX] for the host of this virtual machine, or
    /// ssh://[USER@]HOST[:PORT][/INDEX] to start a server there; without an index all devices of a
    /// server. Ranges stand for several, gpu[1-4]/0-3; @FILE reads the list from a file. With
    /// :by-rank behind the list, each rank of an MPI program uses one device of it. Without this
    /// flag OUTBOARD_SERVER, or the configuration, or this machine.
    #[arg(long, conflicts_with = "local_cpu")]
    server: Option<Targets>,
    #[command(flatten)]
    credentials: credentials::Args,
    /// Use the software device in the program's process, without any server.
    #[arg(long)]
    local_cpu: bool,
    /// Let an MPI program send and receive device memory: its MPI knows none, and gets host memory
    /// in its place. Leave it out for an MPI that is CUDA-aware.
    #[arg(long)]
    mpi: bool,
    /// If the server is of another release, use the client library that it hands out, provided that
    /// a release key has signed it.
    #[arg(long, conflicts_with = "local_cpu")]
    library_from_server: bool,
    /// If the server has no room, fail at once instead of waiting for a place in its queue.
    #[arg(long, conflicts_with = "local_cpu")]
    pub(crate) no_wait: bool,
}

/// What the flags come to, with the environment and the configuration.
pub(crate) struct Chosen {
    /// The servers; none for the software device in the program's process.
    pub(crate) servers: Option<Targets>,
    /// Those of them that were started for the program.
    pub(crate) started: Started,
    /// Whether the program does without the server's queue.
    pub(crate) no_wait: bool,
    /// The variables that the program gets, and those (without a value) that it does not keep.
    pub(crate) variables: BTreeMap<&'static str, Option<OsString>>,
}

impl Chosen {
    /// The servers that are to keep a place for the program: none if each of its processes uses a
    /// device of its own, and this process is none of them.
    pub(crate) fn to_reserve(&self) -> Result<Vec<Target>, Failure> {
        let Some(servers) = &self.servers else { return Ok(Vec::new()) };
        if let Some(by_rank) = servers.by_rank()
            && by_rank.rank()?.is_none()
        {
            return Ok(Vec::new());
        }
        let own = servers.of_this_process(|server| {
            probe::probe(server).map(|offer| offer.platform.devices.len())
        })?;
        Ok(own.servers().to_vec())
    }

    /// The servers, each with its devices.
    pub(crate) fn servers(&self) -> &[Target] {
        self.servers.as_ref().map_or(&[], Targets::servers)
    }
}

impl Args {
    /// Whether a server is named, or the device in the program's process.
    pub(crate) fn names_server(&self) -> bool {
        self.local_cpu || self.server.is_some() || config::is_server_named()
    }

    /// The variables by which a program finds the client's libraries, whatever its servers are.
    pub(crate) fn libraries() -> Result<BTreeMap<&'static str, OsString>> {
        Ok(Args::libraries_in(&install::client_dir()?))
    }

    /// The same for libraries in this folder.
    fn libraries_in(folder: &Path) -> BTreeMap<&'static str, OsString> {
        let given = |name: &str| std::env::var_os(name);
        environment::variables(given, folder, install::python_dir().as_deref())
    }

    /// The servers that the flags name, with the environment and the configuration, as they are
    /// before any is started; none for the software device in the program's process. From now on
    /// this process shows servers what the flags name.
    pub(crate) fn named_servers(&self) -> Result<Option<Targets>, Failure> {
        if self.local_cpu {
            return Ok(None);
        }
        self.credentials.set();
        probe::servers(self.server.clone()).map(Some)
    }

    /// Finds the server and the variables. From now on this process, too, shows the server what the
    /// flags name. `start` is what becomes of servers that are not there yet.
    pub(crate) fn choose(
        self,
        start: impl FnOnce(Targets) -> Result<(Targets, Started)>,
    ) -> Result<Chosen> {
        let given = |name: &str| std::env::var_os(name);
        let preloaded = self.mpi.then(install::mpi).transpose()?;
        let preloaded = preloaded.map(|library| environment::preloaded(given, &library));
        let set = |variables: BTreeMap<&'static str, OsString>| {
            variables
                .into_iter()
                .map(|(name, value)| (name, Some(value)))
                .collect::<BTreeMap<_, _>>()
        };
        if self.local_cpu {
            let mut variables = set(environment::variables(given, &install::cpu_dir()?, None));
            variables.insert(VARIABLE, None);
            variables.extend(preloaded.map(|(name, value)| (name, Some(value))));
            return Ok(Chosen {
                servers: None,
                started: Started::default(),
                no_wait: false,
                variables,
            });
        }
        // Before servers are started: without libraries they would be started in vain.
        let mut variables = set(Args::libraries()?);
        variables.extend(preloaded.map(|(name, value)| (name, Some(value))));
        self.credentials.set();
        variables.extend(self.credentials.changes());
        let (servers, started) = start(probe::servers(self.server)?)?;
        if let Some(folder) = library::of_servers(self.library_from_server, servers.servers())? {
            variables.extend(set(Args::libraries_in(&folder)));
        }
        variables.insert(VARIABLE, Some(servers.to_string().into()));
        let is_alone = servers.servers().len() == 1 && servers.by_rank().is_none();
        let says_lost = if is_alone { own_settings::ALONE } else { "1" };
        variables.insert(SAY_LOST, Some(says_lost.into()));
        variables.extend(set(started.variables()?));
        if self.no_wait {
            variables.insert(QUEUE, Some("0".into()));
        }
        Ok(Chosen { servers: Some(servers), started, no_wait: self.no_wait, variables })
    }
}
