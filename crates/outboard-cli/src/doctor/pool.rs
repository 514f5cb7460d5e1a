//! A pool, as a client of it sees it: its broker, the token, its servers, and a lease.

use std::process::Command;

use miette::{IntoDiagnostic, Result};
use outboard_broker_client::{Blocking, Method};
use outboard_pool::api::{Me, PoolView, Role};
use outboard_pool::words::Condition;
use serde_json::Value;

use super::finding::{Finding, Report};
use crate::pool::access::{self, failed};

/// What broker and token are like, and which servers there are.
pub(super) fn check(args: &access::Args) -> Report {
    let mut findings = Vec::new();
    let url = args.url().unwrap_or_default();
    match args.broker() {
        Ok(broker) => ask(&broker, &mut findings),
        Err(failure) => findings.push(Finding::failure("broker", &failure)),
    }
    Report::new(format!("This machine as a client of the pool {url}"), findings)
}

fn ask(broker: &Blocking, findings: &mut Vec<Finding>) {
    let me: Me = match broker.ask(Method::GET, "/v1/me") {
        Ok(me) => me,
        Err(error) => {
            findings.push(Finding::failure("broker", &failed(&error)));
            return;
        }
    };
    findings.push(Finding::ok("broker", "it answers, and has the expected certificate"));
    let found = format!("the broker knows you as {} ({})", me.owner, me.role);
    findings.push(match me.role {
        Role::Client | Role::Admin => Finding::ok("token", found),
        _ => Finding::warn(
            "token",
            format!("{found}, which may not ask for devices"),
            "`outboard token --broker create --role client` on the broker's machine makes another one",
        ),
    });
    match broker.pool() {
        Ok(view) => servers(&view, findings),
        Err(error) => findings.push(Finding::failure("servers", &failed(&error))),
    }
}

fn servers(view: &PoolView, findings: &mut Vec<Finding>) {
    const CHECK: &str = "servers";
    if view.servers.is_empty() {
        let mend =
            "`outboard serve --pool URL` on a machine with devices brings them into the pool";
        findings.push(Finding::warn(CHECK, "the pool has no servers", mend));
    }
    for server in &view.servers {
        let found = format!(
            "{} at {}: outboard {}, {}",
            server.name,
            server.address,
            server.release,
            crate::whoami::count(server.devices.len(), "device")
        );
        findings.push(match (server.condition, &server.because) {
            (Condition::Ready, _) => Finding::ok(CHECK, found),
            (Condition::Draining, because) => Finding::warn(
                CHECK,
                format!("{found}, which gets no new leases: {}", because.as_deref().unwrap_or("it drains")),
                "others get the leases meanwhile",
            ),
            (Condition::Silent, _) => Finding::warn(
                CHECK,
                format!("{found}, which has not been heard of for a while"),
                "see whether it runs, and what its log says of the pool; `outboard pool forget NAME` if it is gone for good",
            ),
        });
    }
}

/// Has the doctor look at the servers of a lease with so many devices, as a program that has them:
/// its report in JSON or in text, and whether nothing failed.
pub(super) fn with_lease(args: &access::Args, gpus: u32, is_json: bool) -> Result<(String, bool)> {
    let own = std::env::current_exe().into_diagnostic()?;
    let mut command = Command::new(&own);
    command.args(["run", "--no-wait", "--gpus", &gpus.to_string()]);
    command.args(args.flags()).arg("--").arg(&own).arg("doctor");
    if is_json {
        command.arg("--json");
    }
    let ended = command.stderr(std::process::Stdio::inherit()).output().into_diagnostic()?;
    Ok((String::from_utf8_lossy(&ended.stdout).into_owned(), ended.status.success()))
}

/// Both reports as one in JSON. Without a second one there was no lease, which has been said.
pub(super) fn joined(report: &Report, leased: &str) -> Result<Value> {
    let mut all = serde_json::to_value(report).into_diagnostic()?;
    all["leased"] = serde_json::from_str(leased).unwrap_or(Value::Null);
    Ok(all)
}
