//! OpenSSH's server for tests, as a user alone can run it, and a person's configuration for it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use outboard_test_support::ReservedPort;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Folder, Lines, Program, command, is_alive, target_dir, within};

/// The name of the user who logs in, on a machine of namespaces.
const USER: &str = "person";

/// Of the key that has one.
const PASSPHRASE: &str = "correct horse";
/// The file with which a login shell says that it was started.
const USED: &str = ".shell-was-used";

/// A running sshd; ended when dropped. It listens at the loopback interface.
#[derive(Debug)]
pub struct Sshd {
    child: Child,
    folder: Folder,
    _port: ReservedPort,
    /// What it says.
    pub log: Lines,
}

/// What is special about the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine<'a> {
    /// It has no releases; without this, releases stay from test to test.
    pub is_new: bool,
    /// Commands that change what its user finds, `$home` among it.
    pub mounts: &'a str,
    /// Lines of sshd's configuration.
    pub config: &'a str,
    /// Its user's login shell, of those that `cargo xtask ssh` lays out; `sh` without it. `busybox`
    /// is the shell and all other programs that are found.
    pub shell: &'a str,
}

impl Sshd {
    /// Starts one; why not, if this machine has not what is needed.
    pub fn start(machine: Machine<'_>) -> Result<Sshd, String> {
        let debian = target_dir().join("ssh");
        let program = debian.join("usr/sbin/sshd");
        if !program.is_file() {
            return Err("there is no sshd; `cargo xtask ssh` lays one out".to_owned());
        }
        if !Command::new("ssh").arg("-V").output().is_ok_and(|said| said.status.success()) {
            return Err("there is no ssh".to_owned());
        }
        let folder = Folder::create();
        for name in ["home", "run", "client", "bin"] {
            fs::create_dir(folder.join(name)).expect("it is new");
        }
        for (name, passphrase) in [("host", ""), ("key", ""), ("other", ""), ("locked", PASSPHRASE)]
        {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", passphrase, "-f", &folder.path(name)])
                .status();
            made.expect("ssh-keygen is there with ssh");
        }
        let reserved = ReservedPort::any();
        let port = reserved.number();
        let (home, run) = (folder.path("home"), folder.path("run"));
        let shell = login_shell(&folder, machine.shell)?;
        folder.write("passwd", &format!("{USER}:x:1000:1000::{home}:{shell}\n"));
        folder.allow("passwd", 0o644);
        let cache = match machine.is_new {
            true => format!("{home}/.cache"),
            false => target_dir().join("ssh-cache").display().to_string(),
        };
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {} {}\n\
             UsePAM no\nStrictModes no\nLogLevel DEBUG1\nPidFile none\nMaxStartups 100\n{}\n\
             SetEnv OUTBOARD_CPU_MEMORY=256M XDG_RUNTIME_DIR={run} XDG_CACHE_HOME={cache}\n",
            folder.path("host"),
            folder.path("key.pub"),
            folder.path("locked.pub"),
            machine.config,
        );
        let config = folder.write("sshd.conf", &config);
        // A user who cannot become another one logs in as who it is, and has that one's name.
        let script = format!(
            "#!/bin/sh\nhome={home}\nip link set lo up 2>/dev/null\nmount --bind {} /etc/passwd && {{ {}; }} || exit\n\
             LD_LIBRARY_PATH={} exec unshare --user --map-user=1000 --map-group=1000 {} \"$@\"\n",
            folder.path("passwd"),
            if machine.mounts.is_empty() { ":" } else { machine.mounts },
            libraries(),
            program.display(),
        );
        folder.write("bin/sshd", &script);
        folder.allow("bin/sshd", 0o755);
        let mut child = Command::new("unshare")
            .args(["--map-root-user", "--mount", &folder.path("bin/sshd"), "-D", "-e", "-f"])
            .arg(config)
            .process_group(0)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("there is no unshare: {error}"))?;
        let log = Lines::of(child.stderr.take());
        let sshd = Sshd { child, folder, _port: reserved, log };
        let said = sshd.log.until_or_end("Server listening");
        if !said.iter().any(|line| line.contains("Server listening")) {
            return Err(format!("no sshd can be run in namespaces: {}", said.join("; ")));
        }
        sshd.configure(port);
        Ok(sshd)
    }

    /// The person's configuration. `gpu1` and `gpu2` are the machine, `inner` is it behind itself,
    /// `apart` has a network of its own, `wrong` has another key than it had, and `locked` takes a
    /// key of the person's that has a passphrase.
    fn configure(&self, port: u16) {
        let own = |name: &str| self.folder.path(name);
        for (file, key) in [("known", "host.pub"), ("known-wrong", "other.pub")] {
            let key = fs::read_to_string(own(key)).expect("it was made");
            self.folder.write(file, &format!("machine {key}"));
        }
        let apart = format!(
            "ProxyCommand unshare --map-root-user --mount --net {} -i -E {} -f {}",
            own("bin/sshd"),
            own("apart.log"),
            own("sshd.conf"),
        );
        let hosts = [
            ("gpu1", "known", ""),
            ("locked", "known", ""),
            ("gpu2", "known", ""),
            ("inner", "known", "ProxyJump gpu1"),
            ("apart", "known", &apart),
            ("wrong", "known-wrong", ""),
        ];
        let hosts = hosts.map(|(name, known, more)| {
            let key = own(if name == "locked" { name } else { "key" });
            let known = own(known);
            format!("Host {name}\n UserKnownHostsFile {known}\n IdentityFile {key}\n {more}\n")
        });
        let config = format!(
            "{}Host *\n HostName 127.0.0.1\n Port {port}\n User {USER}\n HostKeyAlias machine\n \
             IdentitiesOnly yes\n BatchMode yes\n StrictHostKeyChecking yes\n",
            hosts.concat()
        );
        let config = self.folder.write("ssh.conf", &config);
        let real = find_in_path("ssh").expect("it was asked for its release");
        let wrapper = format!(
            "#!/bin/sh\n{} -F {config} \"$@\"\nstatus=$?\n\
             case \" $* \" in *' -M '*) date +%s%N >{} ;; esac\nexit $status\n",
            real.display(),
            self.folder.path("connected")
        );
        self.folder.write("bin/ssh", &wrapper);
        self.folder.allow("bin/ssh", 0o755);
    }

    /// What the person's commands find.
    pub fn surroundings(&self) -> [(&'static str, String); 4] {
        let path = std::env::var("PATH").unwrap_or_default();
        [
            ("PATH", format!("{}:{path}", self.folder.path("bin"))),
            ("XDG_RUNTIME_DIR", self.folder.path("client")),
            ("OUTBOARD_SSH_DRIVER", "cpu".to_owned()),
            ("OUTBOARD_TRANSPORT", String::new()),
        ]
    }

    /// An agent that has the key with a passphrase, whose socket is in a folder.
    pub fn agent(&self, folder: &Folder) -> Agent {
        let socket = folder.path("agent");
        let mut agent = Command::new("ssh-agent");
        let agent = agent.args(["-D", "-a", &socket]).stdout(Stdio::null()).spawn();
        let agent = Agent { child: agent.expect("it is there with ssh"), socket };
        let answer = folder.write("answer", &format!("#!/bin/sh\necho '{PASSPHRASE}'\n"));
        folder.allow("answer", 0o700);
        let add = || {
            let mut add = Command::new("ssh-add");
            add.args(["-q", &self.folder.path("locked")]).env("SSH_AUTH_SOCK", &agent.socket);
            add.env("SSH_ASKPASS", &answer).env("SSH_ASKPASS_REQUIRE", "force");
            add.stdin(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        assert!(within(Duration::from_secs(10), add), "the agent takes the key");
        agent
    }

    /// Whether the user's shell, if it is not `sh`, was started.
    pub fn has_used_shell(&self) -> bool {
        self.home(USED).exists()
    }

    /// `outboard` as the person calls it.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = command();
        command.args(args).envs(self.surroundings());
        command
    }

    /// A program as the person runs it.
    pub fn program(&self, name: &str) -> Program {
        let named = Program::new(name);
        self.surroundings().iter().fold(named, |program, (name, value)| program.env(name, value))
    }

    /// Has the machine's releases lie there, so that no test waits for what it does not test.
    pub fn with_release(self) -> Sshd {
        static COPIED: OnceLock<()> = OnceLock::new();
        COPIED.get_or_init(|| {
            let said = self.command(&["devices", "--server", "ssh://gpu1"]).output();
            let said = said.expect("outboard starts");
            assert!(said.status.success(), "{said:?} {:?}", self.log);
        });
        self
    }

    /// A file of the user there.
    pub fn home(&self, name: &str) -> PathBuf {
        self.folder.join("home").join(name)
    }

    /// Its processes for connections.
    fn connections(&self) -> Vec<u32> {
        let all = self.processes().into_iter();
        all.filter(|(_, line)| line.starts_with("sshd:")).map(|(process, _)| process).collect()
    }

    /// Waits until nothing is left of programs that have ended: no process, here or there, and no
    /// file but those of caches.
    #[track_caller]
    pub fn expect_nothing_left(&self) {
        let is_empty =
            |name| fs::read_dir(self.folder.join(name)).is_ok_and(|mut all| all.next().is_none());
        let left = || {
            let files = ["client", "run"].into_iter().filter(|name| !is_empty(*name));
            (files.collect::<Vec<_>>(), self.processes())
        };
        let none = || left() == (Vec::new(), Vec::new());
        assert!(within(Duration::from_secs(30), none), "{:?}", left());
    }

    /// How long ago ssh has connected the last time.
    pub fn connected(&self) -> Duration {
        let then = fs::read_to_string(self.folder.path("connected")).expect("it has connected");
        let then = Duration::from_nanos(then.trim().parse().expect("a time"));
        UNIX_EPOCH.elapsed().expect("the clock is right").saturating_sub(then)
    }

    /// Ends all connections at once, as if the network were gone.
    pub fn cut(&self) {
        self.connections().into_iter().for_each(kill);
    }

    /// Kills the servers that were started there, but not the shells that keep them.
    pub fn kill_servers(&self) {
        let servers = self.processes().into_iter().filter(|(_, line)| line.contains("--over-ssh"));
        servers.for_each(|(process, _)| kill(process));
    }

    /// Processes, but for sshd itself, that run on the machine, or that were started with something
    /// of its folder.
    fn processes(&self) -> Vec<(u32, String)> {
        let folder = self.folder.display().to_string();
        let all = fs::read_dir("/proc").expect("there is /proc").flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let other = all.filter(|process| *process != self.child.id() && is_alive(*process));
        let place = |process: u32| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let there = place(self.child.id());
        let told = |process: u32, file: &str| {
            let text = fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&text).replace('\0', " ")
        };
        let ours = other.filter(|process| {
            place(*process) == there
                || ["cmdline", "environ"].iter().any(|file| told(*process, file).contains(&folder))
        });
        ours.map(|process| (process, told(process, "cmdline"))).collect()
    }
}

/// A running ssh-agent; ended when dropped.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    /// The value of `SSH_AUTH_SOCK`.
    pub socket: String,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the laid-out programs find their libraries.
fn libraries() -> String {
    let folders = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];
    folders.map(|path| target_dir().join("ssh").join(path).display().to_string()).join(":")
}

/// The path of the user's login shell: a script that says that it was started, and becomes it.
fn login_shell(folder: &Folder, name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Ok("/bin/sh".to_owned());
    }
    let places = ["bin", "usr/bin"].map(|bin| target_dir().join("ssh").join(bin).join(name));
    let program = places.into_iter().find(|path| path.is_file());
    let program = program.ok_or_else(|| format!("there is no {name}; `cargo xtask ssh`"))?;
    let program = program.display();
    let become_it = match name {
        "busybox" => format!(
            "mkdir -p {0}; {program} --install -s {0}; PATH={0} exec {program} sh \"$@\"",
            folder.path("applets")
        ),
        _ => format!("LD_LIBRARY_PATH={} exec {program} \"$@\"", libraries()),
    };
    let script = format!("#!/bin/sh\ntouch {}/{USED}\n{become_it}\n", folder.path("home"));
    let path = folder.write("shell", &script);
    folder.allow("shell", 0o755);
    Ok(path)
}

fn kill(process: u32) {
    let process = Pid::from_raw(process as i32).expect("a process");
    // It may have ended meanwhile.
    let _ = kill_process(process, Signal::KILL);
}

fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // What a failed test has left goes, too.
        let left = self.processes();
        let _ = self.child.kill();
        let _ = self.child.wait();
        left.into_iter().for_each(|(process, _)| kill(process));
    }
}
