//! An etcd of several members on this machine, which tests kill, stop and start again.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

use crate::ReservedPort;

/// Names the program in place of the one that `cargo xtask etcd` lays out.
const VARIABLE: &str = "OUTBOARD_ETCD";
/// How long an etcd may take to answer after it was started.
const STARTUP: Duration = Duration::from_secs(30);

/// The program, if this machine has it.
pub fn program() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let own = std::env::current_exe().ok();
    let laid_out = own.and_then(|own| {
        own.ancestors().map(|folder| folder.join("etcd/etcd")).find(|path| path.is_file())
    });
    let search = std::env::var_os("PATH").unwrap_or_default();
    let installed = || std::env::split_paths(&search).map(|folder| folder.join("etcd"));
    named.or(laid_out).or_else(|| installed().find(|path| path.is_file()))
}

/// Files in PEM by which members and clients of an etcd know each other.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The authority that has signed the other one.
    pub authority: String,
    /// The members' certificate, for servers and clients, and its key.
    pub member: [String; 2],
}

/// A running etcd; killed when dropped.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    _folder: TempDir,
}

#[derive(Debug)]
struct Member {
    /// At which it answers clients.
    port: ReservedPort,
    /// At which it answers the other members.
    _peer: ReservedPort,
    arguments: Vec<String>,
    child: Child,
}

fn spawn(arguments: &[String]) -> Child {
    let program = program().expect("it was there before");
    let log = std::env::var_os("OUTBOARD_ETCD_LOG").is_some();
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(if log { Stdio::inherit() } else { Stdio::null() })
        .spawn()
        .expect("etcd starts")
}

impl Etcd {
    /// Starts one of so many members, if this machine has the program.
    pub fn start(count: usize) -> Option<Etcd> {
        Etcd::start_with(count, None)
    }

    /// The same, which speaks only with those who have a certificate of the authority.
    pub fn start_with(count: usize, tls: Option<&Certificates>) -> Option<Etcd> {
        program()?;
        let folder = tempfile::tempdir().expect("a folder can be made");
        let ports: Vec<[ReservedPort; 2]> =
            (0..count).map(|_| [ReservedPort::any(), ReservedPort::any()]).collect();
        let url = |at: usize, peer: u16| format!("m{at}=http://127.0.0.1:{peer}");
        let peers = ports.iter().enumerate().map(|(at, [_, peer])| url(at, peer.number()));
        let peers = peers.collect::<Vec<String>>().join(",");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let secured = tls.map_or_else(Vec::new, |tls| {
            let [certificate, key] = &tls.member;
            vec![
                "--client-cert-auth".to_owned(),
                format!("--trusted-ca-file={}", tls.authority),
                format!("--cert-file={certificate}"),
                format!("--key-file={key}"),
            ]
        });
        let arguments = |at: usize, client: u16, peer: u16| {
            let listens = format!("{scheme}://127.0.0.1:{client}");
            let peer = format!("http://127.0.0.1:{peer}");
            let mut all = vec![
                format!("--name=m{at}"),
                format!("--data-dir={}", folder.path().join(format!("m{at}")).display()),
                format!("--listen-client-urls={listens}"),
                format!("--advertise-client-urls={listens}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster={peers}"),
                "--log-level=error".to_owned(),
                // Members are killed, the machine is not; a slow disk would have them elect anew.
                "--unsafe-no-fsync".to_owned(),
            ];
            all.extend(secured.iter().cloned());
            all
        };
        let members = ports.into_iter().enumerate().map(|(at, [port, peer])| {
            let arguments = arguments(at, port.number(), peer.number());
            Member { port, _peer: peer, child: spawn(&arguments), arguments }
        });
        let mut etcd = Etcd { members: members.collect(), _folder: folder };
        let until = Instant::now() + STARTUP;
        // One that is encrypted is asked by brokers, which wait for it.
        while tls.is_none() && !etcd.members.iter().all(Member::is_well) {
            for (at, member) in etcd.members.iter_mut().enumerate() {
                let ended = member.child.try_wait().expect("it is a child");
                assert!(ended.is_none(), "member {at} of etcd has ended: {ended:?}");
            }
            assert!(Instant::now() < until, "etcd does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(etcd)
    }

    /// As a broker is told.
    pub fn url(&self) -> String {
        let members: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("127.0.0.1:{}", member.port.number()))
            .collect();
        format!("etcd://{}", members.join(","))
    }

    /// The ports at which members answer clients.
    pub fn ports(&self) -> Vec<u16> {
        self.members.iter().map(|member| member.port.number()).collect()
    }

    /// The member that leads, of those that answer.
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(Member::leads)
    }

    /// How many members there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Kills a member with no time to do anything.
    pub fn kill(&mut self, at: usize) {
        let child = &mut self.members[at].child;
        child.kill().expect("it runs");
        child.wait().expect("it has run");
    }

    /// Starts a member again that was killed.
    pub fn restart(&mut self, at: usize) {
        let member = &mut self.members[at];
        member.child = spawn(&member.arguments);
    }

    /// Stops a member, which then answers nobody although connections to it come about.
    pub fn stop(&self, at: usize) {
        self.signal(at, Signal::STOP);
    }

    /// Has a member go on that was stopped.
    pub fn go_on(&self, at: usize) {
        self.signal(at, Signal::CONT);
    }

    fn signal(&self, at: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.members[at].child), signal).expect("it runs");
    }
}

impl Member {
    /// Whether it answers, and knows a leader.
    fn is_well(&self) -> bool {
        let said = self.ask("GET /health HTTP/1.0\r\n\r\n");
        said.is_ok_and(|said| said.contains("\"health\":\"true\""))
    }

    fn leads(&self) -> bool {
        let request = "POST /v3/maintenance/status HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}";
        let Ok(said) = self.ask(request) else { return false };
        let body = said.split("\r\n\r\n").nth(1).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        !status["leader"].is_null() && status["leader"] == status["header"]["member_id"]
    }

    fn ask(&self, request: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port.number()))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(request.as_bytes())?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}
