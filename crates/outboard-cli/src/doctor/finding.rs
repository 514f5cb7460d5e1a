//! Findings of the doctor, and how they are printed.

use std::fmt::Write as _;

use outboard_client::target::Target;
use outboard_wire::Code;
use serde::Serialize;

use crate::failure::Failure;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Works, but not as well as it could, or not for all programs.
    Warn,
    /// Does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    /// Of which server, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// The subject, in a word.
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    /// The finding: a sentence.
    pub(crate) found: String,
    /// How to mend it, or what to expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<&'static str>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            server: None,
            check,
            level: Level::Ok,
            found: found.into(),
            mend: None,
            code: None,
        }
    }

    pub(crate) fn warn(
        check: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Warn, mend: Some(mend.into()), ..Finding::ok(check, found) }
    }

    pub(crate) fn fail(
        check: &'static str,
        code: Code,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Fail, code: Some(code.text()), ..Finding::warn(check, found, mend) }
    }

    /// Something that cannot work, and has no code: no command says it.
    pub(crate) fn hopeless(
        check: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Fail, ..Finding::warn(check, found, mend) }
    }

    /// The failure that a command would have printed.
    pub(crate) fn failure(check: &'static str, failure: &Failure) -> Finding {
        Finding::fail(check, failure.code(), failure.to_string(), failure.help())
    }

    /// Says which of several servers it is about.
    pub(crate) fn of(mut self, server: &Target) -> Finding {
        self.server = Some(server.to_string());
        self
    }

    /// Adds advice to a finding that is no failure.
    pub(crate) fn expect(mut self, mend: impl Into<String>) -> Finding {
        self.mend = Some(mend.into());
        self
    }
}

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Of what.
    pub(crate) of: String,
    pub(crate) worst: Level,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(of: impl Into<String>, findings: Vec<Finding>) -> Report {
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
        Report { of: of.into(), worst, findings }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.of);
        let width = self.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        let mut server = &None;
        for finding in &self.findings {
            if *server != finding.server {
                server = &finding.server;
                let _ = writeln!(text, "\n{}", server.as_deref().unwrap_or_default());
            }
            let level = match finding.level {
                Level::Ok => "ok  ",
                Level::Warn => "warn",
                Level::Fail => "FAIL",
            };
            let code = finding.code.map_or_else(String::new, |code| format!(" [{code}]"));
            let _ = writeln!(text, "{level}  {:width$}  {}{code}", finding.check, finding.found);
            for line in finding.mend.iter().flat_map(|mend| mend.lines()) {
                let _ = writeln!(text, "      {:width$}  → {line}", "");
            }
        }
        let count = |level| self.findings.iter().filter(|finding| finding.level == level).count();
        let (failed, warned) = (count(Level::Fail), count(Level::Warn));
        let _ = match (failed, warned) {
            (0, 0) => writeln!(text, "\nEverything is as it should be."),
            (0, _) => writeln!(text, "\nIt works; {warned} could be better."),
            _ => writeln!(text, "\n{failed} failed. `outboard explain CODE` says more."),
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_counts() {
        let ok = || Finding::ok("link", "fast");
        let warn = || Finding::warn("limits", "low", "raise it\nor not");
        assert_eq!(Report::new("x", vec![]).worst, Level::Ok);
        assert_eq!(Report::new("x", vec![warn(), ok()]).worst, Level::Warn);
        let report = Report::new(
            "x",
            vec![ok(), Finding::fail("server", Code::Busy, "full", "wait"), warn()],
        );
        assert_eq!(report.worst, Level::Fail);
        let text = report.text();
        assert!(text.contains("FAIL  server  full [OB0206]\n              → wait\n"), "{text}");
        assert!(text.contains("→ raise it\n              → or not"), "{text}");
        let of = |server: &str| ok().of(&server.parse().unwrap());
        let text = Report::new("x", vec![ok(), of("gpu1"), of("gpu1"), of("gpu2")]).text();
        let wanted = "x\n\nok    link  fast\n\ngpu1:9470\nok    link  fast\nok    link  fast\n\ngpu2:9470\nok    link  fast\n";
        assert!(text.starts_with(wanted), "{text}");
    }
}
