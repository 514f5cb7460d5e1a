//! Flags that say what a program needs of a pool.

use outboard_pool::api::{Ask, Me};
use outboard_pool::words::{
    Capability, Label, MayShare, Purpose, Request, Servers, Share, Size, Thumbprint, Use,
};

use crate::time::Span;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// How many devices of a pool the program needs: a broker says which.
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["server", "local_cpu"],
        value_parser = clap::value_parser!(u32).range(1..=4096),
        help_heading = "Pool"
    )]
    pub(crate) gpus: Option<u32>,
    /// The memory that it needs of each; K, M, G and T stand for powers of 1024.
    #[arg(long, value_name = "SIZE", requires = "gpus", help_heading = "Pool")]
    memory: Option<Size>,
    /// Share the devices with others: this percentage of the multiprocessors of each is enough, and
    /// no more memory than --memory says. Without it nobody else uses them.
    #[arg(
        long,
        value_name = "PERCENT",
        requires = "memory",
        value_parser = share,
        help_heading = "Pool"
    )]
    share: Option<Share>,
    /// Nobody else may use the devices. This is the default.
    #[arg(long, requires = "gpus", conflicts_with = "share", help_heading = "Pool")]
    exclusive: bool,
    /// A part of the devices' model, such as `h100`.
    #[arg(long, requires = "gpus", help_heading = "Pool")]
    model: Option<String>,
    /// The lowest compute capability that will do.
    #[arg(long, value_name = "X.Y", requires = "gpus", help_heading = "Pool")]
    capability: Option<Capability>,
    /// All devices are to be on one server.
    #[arg(long, requires = "gpus", help_heading = "Pool")]
    same_server: bool,
    /// Each device is to be on another server.
    #[arg(long, requires = "gpus", conflicts_with = "same_server", help_heading = "Pool")]
    spread: bool,
    /// Servers with this label come first, such as `rack=r7`.
    #[arg(long, value_name = "KEY=VALUE", requires = "gpus", help_heading = "Pool")]
    near: Option<Label>,
    /// How long to wait for the devices, and for the broker if it is away. Without it: for the
    /// devices as long as it takes, and not for a broker that is away. --no-wait waits for nothing.
    #[arg(
        long,
        value_name = "TIME",
        requires = "gpus",
        conflicts_with = "no_wait",
        help_heading = "Pool"
    )]
    pub(crate) wait: Option<Span>,
    /// For how long the devices are needed at most; the broker may allow less.
    #[arg(long = "for", value_name = "TIME", requires = "gpus", help_heading = "Pool")]
    for_at_most: Option<Span>,
}

fn share(text: &str) -> Result<Share, String> {
    let percent: u8 = text
        .trim_end_matches('%')
        .parse()
        .map_err(|_| format!("`{text}` is no percentage; write a number from 1 to 100"))?;
    Share::try_from(percent).map_err(|wrong| wrong.to_string())
}

/// As many seconds as there are, at most as many as a request can say.
fn whole_seconds(span: Span) -> u32 {
    u32::try_from(span.0.as_secs()).unwrap_or(u32::MAX)
}

impl Args {
    /// What to ask the broker for, which takes the caller for that owner.
    pub(super) fn ask(&self, me: &Me, gpus: u32, no_wait: bool, client_key: Thumbprint) -> Ask {
        let servers = match (self.same_server, self.spread) {
            (true, _) => Servers::Same,
            (_, true) => Servers::Distinct,
            _ => Servers::Any,
        };
        let request = Request {
            memory_bytes: self.memory.map_or(0, |Size(bytes)| bytes),
            usage: self.share.map_or(Use::Exclusive, Use::Shared),
            model: self.model.clone(),
            capability: self.capability,
            servers,
            near: self.near.clone(),
            // The program's own processes have the key.
            may_share: MayShare::SameKey,
            wait_seconds: match self.wait {
                _ if no_wait => 0,
                Some(span) => whole_seconds(span),
                None => u32::MAX,
            },
            ..Request::new(me.owner.clone(), me.group.clone(), gpus)
        };
        Ask {
            for_seconds: self.for_at_most.map(whole_seconds),
            // Asked again because the answer was lost, it is this lease.
            purpose: purpose(&client_key),
            ..Ask::new(request, client_key)
        }
    }
}

/// A name for what this run asks for: each has a key of its own.
fn purpose(key: &Thumbprint) -> Option<Purpose> {
    let key = key.as_str();
    format!("run.{}", key.get(..32).unwrap_or(key)).parse().ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[arg(long)]
        server: Option<String>,
        #[arg(long)]
        local_cpu: bool,
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        args: Args,
    }

    fn asked(flags: &[&str]) -> Result<Request, String> {
        let line = Line::try_parse_from(std::iter::once(&"x").chain(flags))
            .map_err(|error| error.to_string())?;
        let me = Me {
            owner: "ada".parse().unwrap(),
            group: "vision".parse().unwrap(),
            role: outboard_pool::api::Role::Client,
        };
        let key = "ab".repeat(32).parse().unwrap();
        let gpus = line.args.gpus.unwrap_or(0);
        let ask = line.args.ask(&me, gpus, line.no_wait, key);
        assert_eq!(ask.purpose, format!("run.{}", "ab".repeat(16)).parse().ok());
        Ok(ask.request)
    }

    #[test]
    fn flags_make_a_request() {
        let plain = asked(&["--gpus", "2", "--memory", "20G"]).unwrap();
        assert_eq!((plain.devices, plain.memory_bytes), (2, 20 << 30));
        assert_eq!((plain.usage, plain.wait_seconds), (Use::Exclusive, u32::MAX));
        assert_eq!(plain.check(), Ok(()));
        let line = ["--gpus=1", "--memory=4G", "--share=25", "--wait=10m", "--near=rack=r7"];
        let shared = asked(&line).unwrap();
        assert_eq!(shared.usage, Use::Shared(Share::try_from(25).unwrap()));
        assert_eq!(
            (shared.wait_seconds, shared.near.unwrap().to_string()),
            (600, "rack=r7".into())
        );
        let now = asked(&["--gpus=1", "--no-wait", "--spread", "--capability=9.0"]).unwrap();
        assert_eq!((now.wait_seconds, now.servers), (0, Servers::Distinct));
        assert_eq!(now.capability, Some(Capability { major: 9, minor: 0 }));
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for line in [
            &["--memory", "20G"][..],
            &["--gpus", "0"],
            &["--gpus", "1", "--share", "20"],
            &["--gpus", "1", "--memory", "1G", "--share", "101"],
            &["--gpus", "1", "--memory", "1G", "--share", "1", "--exclusive"],
            &["--gpus", "1", "--same-server", "--spread"],
            &["--gpus", "1", "--server", "gpu1"],
            &["--gpus", "1", "--wait", "1m", "--no-wait"],
            &["--gpus", "1", "--near", "rack"],
        ] {
            assert!(asked(line).is_err(), "{line:?}");
        }
    }
}
