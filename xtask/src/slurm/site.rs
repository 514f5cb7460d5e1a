//! A cluster's configuration: what a site has, and what deploy/slurm adds to it.

use super::accounts::{Accounts, WEIGHT};
use super::daemons::free_port;
use super::folder;
use super::inside::PROGRAMS;
use super::pool::{Pool, write_secret};
use crate::util::{self, root};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

/// The machine's name: Slurm wants to find itself in its configuration.
pub(super) const HOST: &str = "controller";
pub(super) const CLUSTER: &str = "trial";
pub(super) const NODES: [&str; 2] = ["n1", "n2"];
pub(super) const CONFIGURATION: &str = "/etc/slurm/slurm.conf";
/// As whom munge and Slurm's controller run, with their numbers.
pub(super) const MUNGE: (&str, u32) = ("munge", 901);
pub(super) const SLURM: (&str, u32) = ("slurm", 902);
/// Users, with their numbers.
pub(super) const USERS: [(&str, u32); 2] = [("ada", 4001), ("bob", 4002)];
/// Where jobs write.
pub(super) const WORK: &str = "/run/jobs";
/// Says on which servers a job's devices are, and tries them. All software devices have one UUID.
pub(super) const TRY: &str = "/run/jobs/try";

/// The settings of the broker for Slurm, with short times: nobody waits here for minutes.
fn settings(pool: &Pool) -> String {
    format!(
        "OUTBOARD_POOL={}\nOUTBOARD_POOL_FINGERPRINT={}\n\
         OUTBOARD_POOL_TOKEN_FILE=/etc/outboard/slurm.token\n\
         OUTBOARD_SLURM_NODE_TOKEN_FILE={}\n\
         OUTBOARD_SLURM_WAIT=8s\nOUTBOARD_CONFIG=none\nPATH=/usr/bin:/bin\n",
        pool.url,
        pool.fingerprint,
        node_token("$SLURMD_NODENAME")
    )
}

/// The file with a node's token. All nodes are on one machine here.
pub(super) fn node_token(node: &str) -> String {
    format!("/etc/outboard/slurm-node-{node}.token")
}

/// What a site of one machine has.
fn base(accounts: &Accounts) -> Result<String> {
    let logs = folder().join("logs");
    let logs = logs.display();
    let mut text = format!(
        "ClusterName={CLUSTER}\n\
         SlurmctldHost={HOST}(127.0.0.1)\n\
         SlurmctldPort={}\n\
         SlurmUser=slurm\nSlurmdUser=root\nAuthType=auth/munge\nCredType=cred/munge\n\
         PluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm\n\
         StateSaveLocation=/run/slurm/state\nSlurmdSpoolDir=/run/slurm/%n\n\
         SlurmctldPidFile=/run/slurm/slurmctld.pid\nSlurmdPidFile=/run/slurm/slurmd-%n.pid\n\
         SlurmctldLogFile={logs}/slurmctld.log\nSlurmdLogFile={logs}/slurmd-%n.log\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
         SlurmdParameters=config_overrides\nMpiDefault=none\nSwitchType=switch/none\n\
         ReturnToService=2\nKillWait=5\n\
         PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n\
         PartitionName=usual Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF \
         TRESBillingWeights=CPU=1,license/rgpu={WEIGHT}\n\
         PartitionName=again Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE\n\
         PartitionName=gone Nodes=ALL PriorityTier=1 PreemptMode=CANCEL\n",
        free_port()?
    );
    text += &accounts.settings();
    for node in NODES {
        text += &format!(
            "NodeName={node} NodeHostname={HOST} NodeAddr=127.0.0.1 Port={} CPUs=8 Gres=rgpu:64\n",
            free_port()?
        );
    }
    Ok(text)
}

/// Slurm looks for work every second: its usual minute is long here.
fn hurried(text: &str) -> Result<String> {
    const SETTING: &str = "SchedulerParameters=nohold_on_prolog_fail";
    if !text.contains(SETTING) {
        bail!("deploy/slurm/slurm.conf lacks {SETTING}");
    }
    let more = ",bf_interval=1,sched_interval=1";
    Ok(text.replace(SETTING, &format!("{SETTING}{more}")))
}

/// Writes all of it, at the places that deploy/slurm/README.md names.
pub(super) fn write(pool: &Pool, accounts: &Accounts) -> Result<()> {
    for (path, mode) in [("/etc/slurm", 0o755), ("/etc/outboard", 0o755), (WORK, 0o1777)] {
        fs::create_dir_all(path).with_context(|| format!("cannot make {path}"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    fs::create_dir_all("/run/slurm/state")?;
    own("/run/slurm/state", SLURM)?;
    fs::write(CONFIGURATION, base(accounts)?)?;
    util::run(Command::new("sh").args(["-exc", &documented()?]).current_dir(root()))?;
    fs::write(CONFIGURATION, hurried(&fs::read_to_string(CONFIGURATION)?)?)?;
    write_secret("/etc/outboard/slurm.token", &pool.scheduler()?)?;
    write_secret("/etc/outboard/slurm.env", &settings(pool))?;
    for node in NODES {
        write_secret(&node_token(node), &pool.node(node)?)?;
    }
    // As the page says for a Slurm with a user of its own.
    for name in ["token", "env"] {
        let path = format!("/etc/outboard/slurm.{name}");
        chown(&path, None, Some(SLURM.1)).with_context(|| format!("cannot give away {path}"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o640))?;
    }
    let servers = "for server in $(echo $OUTBOARD_SERVER | tr , ' '); do echo server $server; done";
    fs::write(TRY, format!("#!/bin/sh\n{servers}\nexec {PROGRAMS}/devices\n"))?;
    fs::set_permissions(TRY, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// What docs/slurm.md has an administrator do.
fn documented() -> Result<String> {
    let page =
        fs::read_to_string(root().join("docs/slurm.md")).context("there is docs/slurm.md")?;
    let (_, block) = page.split_once("```sh\n# as root\n").context("the page says what to do")?;
    let (block, _) = block.split_once("\n```").context("a block has an end")?;
    Ok(block.to_owned())
}

/// Gives a file to a user.
pub(super) fn own(path: &str, (_, number): (&str, u32)) -> Result<()> {
    chown(path, Some(number), Some(number)).with_context(|| format!("cannot give away {path}"))
}

/// Adds all users to the machine.
pub(super) fn users() -> Result<()> {
    let (mut users, mut groups) =
        (fs::read_to_string("/etc/passwd")?, fs::read_to_string("/etc/group")?);
    for (name, number) in USERS.into_iter().chain([MUNGE, SLURM]) {
        users += &format!("{name}:x:{number}:{number}::{WORK}:/bin/sh\n");
        groups += &format!("{name}:x:{number}:\n");
    }
    fs::write("/etc/passwd", users)?;
    Ok(fs::write("/etc/group", groups)?)
}
