//! Which RDMA adapters sessions may use.

use ipnet::IpNet;
use outboard_control::messages::Rdma;
use outboard_supervisor::Config;
use outboard_transport::rdma::{Allowed, Mtu, Settings, has_adapters};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Whether sessions of clients that have RDMA adapters, too, move to this machine's: `auto`
    /// where there are some, `off` never. Their bytes stay encrypted if they are. `clear` where
    /// there are some, and without encryption: for a network in which you trust all machines.
    #[arg(long, default_value = "auto", value_name = "auto|clear|off")]
    rdma: Use,
    /// The adapters, by the names that `rdma link` shows. Without it all.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    rdma_device: Vec<String>,
    /// The networks in which the adapters' addresses are: 10.1.0.0/16,… Without it any.
    #[arg(long, value_name = "NETWORK,…", value_delimiter = ',')]
    rdma_network: Vec<IpNet>,
    /// Which of these a session uses: `all` in turn, or only the `nearest` ones to its GPUs on the
    /// machine's buses; those below the same switch, then the same bridge, then the same processor.
    #[arg(long, default_value = "all", value_name = "all|nearest")]
    rdma_adapters: Which,
    /// Whether adapters read and write device memory themselves (GPUDirect RDMA): `auto` where the
    /// CUDA driver gives a dma-buf, or the kernel has the module `nvidia-peermem`; `off` never.
    #[arg(long, default_value = "auto", value_name = "auto|off")]
    rdma_gpudirect: GpuDirect,
    /// How many messages each way are under way between two adapters.
    #[arg(long, default_value_t = Settings::default().depth, value_name = "N",
          value_parser = depth)]
    rdma_depth: u32,
    /// The most bytes of a packet: 256, 512, 1024, 2048 or 4096. The link may allow less.
    #[arg(long, default_value_t = Settings::default().mtu.bytes(), value_name = "BYTES",
          value_parser = mtu)]
    rdma_mtu: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Use {
    Auto,
    Clear,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    All,
    Nearest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum GpuDirect {
    Auto,
    Off,
}

fn depth(text: &str) -> Result<u32, String> {
    let depth = text.parse().map_err(|_| format!("`{text}` is not a number of messages"))?;
    let settings = Settings { depth, ..Settings::default() };
    settings.check().map(|settings| settings.depth).map_err(|error| error.to_string())
}

fn mtu(text: &str) -> Result<u32, String> {
    let bytes =
        text.parse().ok().filter(|bytes| Mtu::within(*bytes).map(Mtu::bytes) == Some(*bytes));
    bytes.ok_or_else(|| format!("packets have 256, 512, 1024, 2048 or 4096 bytes, not `{text}`"))
}

/// Adapters use locked memory. Who may lets workers lock as much as they need, which their control
/// groups bound; others as much as the system lets them.
pub(crate) fn raise_locked_memory() {
    if setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_err() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
        let _ = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum });
    }
}

impl Args {
    /// Whether workers may use adapters.
    pub(crate) fn is_on(&self) -> bool {
        self.rdma != Use::Off
    }

    /// Which adapters they may use, and how, if they may.
    pub(crate) fn used(&self) -> Option<(Allowed, Settings)> {
        let allowed = Allowed {
            devices: self.rdma_device.clone(),
            networks: self.rdma_network.clone(),
            // It depends on a session's GPUs.
            near: Vec::new(),
        };
        self.is_on().then_some((allowed, Settings::with(self.rdma_depth, self.rdma_mtu)))
    }

    pub(crate) fn apply(self, config: &mut Config) {
        if self.is_on() && has_adapters() {
            raise_locked_memory();
        }
        config.rdma = self.is_on().then(|| Rdma {
            devices: self.rdma_device,
            networks: self.rdma_network.iter().map(IpNet::to_string).collect(),
            nearest: self.rdma_adapters == Which::Nearest,
            clear: self.rdma == Use::Clear,
            gpudirect: self.rdma_gpudirect == GpuDirect::Auto,
            depth: self.rdma_depth,
            mtu: self.rdma_mtu,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_and_packets_are_those_that_there_are() {
        assert_eq!(depth("128"), Ok(128));
        assert!(depth("3").unwrap_err().contains("4 to 1024"));
        assert!(depth("many").unwrap_err().contains("many"));
        assert_eq!(mtu("4096"), Ok(4096));
        for wrong in ["1500", "0", "large"] {
            assert!(mtu(wrong).unwrap_err().contains(wrong));
        }
    }
}
