//! `outboard upgrade`.

use miette::{IntoDiagnostic, Result};
use outboard_supervisor::admin::{UpgradeError, Upgraded};
use outboard_wire::Code;

use crate::admin;
use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: admin::AdminArgs,
    /// The server's process id, instead of its address: for service managers.
    #[arg(long, value_name = "PID", conflicts_with = "admin")]
    process: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn upgrade(args: &Args) -> Result<()> {
    let admin = match args.process {
        Some(process) => admin::of_process(process)?,
        None => args.admin.connect()?,
    };
    let upgraded = admin.upgrade().map_err(|error| explain(&error))?;
    let text = if args.json {
        serde_json::to_string_pretty(&upgraded).into_diagnostic()? + "\n"
    } else {
        said(&upgraded)
    };
    crate::output::print(&text)
}

fn said(upgraded: &Upgraded) -> String {
    let Upgraded { from, software, process, .. } = upgraded;
    let program = upgraded.program.display();
    let which = if upgraded.same_program {
        format!("{program} is the program that it was already; its settings were read anew")
    } else {
        format!("it was {from}, and is what now lies at {program}")
    };
    format!(
        "The server (process {process}) serves as {software}: {which}. {}.\n",
        sessions(upgraded)
    )
}

fn sessions(upgraded: &Upgraded) -> String {
    let Upgraded { sessions, went_on, unanswered, .. } = *upgraded;
    let ended = sessions.saturating_sub(went_on + unanswered);
    let mut text = match (sessions, went_on) {
        (0, _) => return "There were no sessions".to_owned(),
        (1, 1) => "The one session went on".to_owned(),
        (all, same) if all == same => format!("All {all} sessions went on"),
        (all, some) => format!("{some} of {all} sessions went on"),
    };
    if ended > 0 {
        text += &format!("; {ended} ended meanwhile");
    }
    if unanswered > 0 {
        text += &format!(
            "; the workers of {unanswered} have not answered yet and are asked again (`outboard sessions`)"
        );
    }
    text
}

fn explain(error: &UpgradeError) -> Failure {
    match error {
        UpgradeError::Stays(sentence) if Code::at_end_of(sentence).is_none() => Failure::new(
            Code::AdminFailed,
            sentence.as_str(),
            "a server of an earlier release is asked by the signal SIGUSR2: `systemctl kill --kill-who=main --signal=USR2 outboard`",
        ),
        UpgradeError::Stays(sentence) => Failure::new(
            Code::NotUpgraded,
            sentence.as_str(),
            "mend that and ask again; programs and sessions have noticed nothing",
        ),
        UpgradeError::Unanswered(error) => admin::failed(error),
        UpgradeError::Lost(sentence) => Failure::new(
            Code::UpgradeLost,
            sentence.as_str(),
            "its log says why (`journalctl -u outboard`); sessions wait for a server at the same address: put the program of before in its place \
             and start it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgraded(
        same_program: bool,
        sessions: usize,
        went_on: usize,
        unanswered: usize,
    ) -> Upgraded {
        let (from, software) = ("1.0.0".to_owned(), "1.0.1".to_owned());
        let program = "/opt/outboard/bin/outboard".into();
        Upgraded {
            from,
            software,
            program,
            same_program,
            process: 7,
            sessions,
            went_on,
            unanswered,
        }
    }

    #[test]
    fn what_happened_is_said_in_a_sentence() {
        assert_eq!(
            said(&upgraded(false, 2, 2, 0)),
            "The server (process 7) serves as 1.0.1: it was 1.0.0, and is what now lies at /opt/outboard/bin/outboard. All 2 sessions went on.\n"
        );
        assert!(said(&upgraded(true, 0, 0, 0)).ends_with(
            "/opt/outboard/bin/outboard is the program that it was already; its settings were read anew. There were no sessions.\n"
        ));
        assert_eq!(sessions(&upgraded(false, 1, 1, 0)), "The one session went on");
        assert_eq!(
            sessions(&upgraded(false, 4, 3, 0)),
            "3 of 4 sessions went on; 1 ended meanwhile"
        );
        assert!(
            sessions(&upgraded(false, 4, 2, 2))
                .starts_with("2 of 4 sessions went on; the workers of 2 have not")
        );
    }

    #[test]
    fn a_refusal_keeps_its_sentence() {
        let stays =
            "the server is not upgraded and goes on as it is: no such file [OB0801]".to_owned();
        assert_eq!(explain(&UpgradeError::Stays(stays)).code(), Code::NotUpgraded);
        let older =
            "this server (0.1.0, administration 1) does not understand the question".to_owned();
        assert_eq!(explain(&UpgradeError::Stays(older)).code(), Code::AdminFailed);
        assert_eq!(explain(&UpgradeError::Lost("it ended".to_owned())).code(), Code::UpgradeLost);
    }
}
