//! Memory that virtual machines and this host share.

use std::io;
use std::path::PathBuf;

use outboard_supervisor::Config;
use outboard_transport::ivshmem::Region;
use outboard_wire::Code;

use crate::failure::Failure;

const HELP: &str =
    "name the file of the virtual machine's device: QEMU's `mem-path`, libvirt's /dev/shm/NAME";

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The file of memory that a virtual machine and this host share (QEMU's `ivshmem-plain`):
    /// /dev/shm/NAME, for each machine another one. Sessions of programs in that machine move their
    /// bytes there. Everybody who may open the device in the machine can read them, unless the
    /// connection is encrypted.
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    ivshmem: Vec<PathBuf>,
}

impl Args {
    pub(crate) fn regions(&self) -> impl Iterator<Item = Region> {
        self.ivshmem.iter().map(Region::at)
    }

    pub(crate) fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        config.regions = self.regions().collect();
        for region in &config.regions {
            let path = region.path().display();
            match region.prepare() {
                Ok((_, parts)) => tracing::info!(%path, parts, "memory for a virtual machine"),
                // The machine's start makes it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!(%path, "there is no such file yet");
                }
                Err(error) => {
                    let sentence = format!("`--ivshmem {path}` cannot be used: {error}");
                    return Err(Failure::new(Code::BadConfiguration, sentence, HELP));
                }
            }
        }
        Ok(())
    }
}
