//! What the program that measures and its participants say to each other: one JSON object a line,
//! requests on the participant's standard input, answers on its standard output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a participant is asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Set up everything for a measurement and try it once; answered by [`Answer::Ready`].
    Prepare {
        /// Which.
        measure: String,
        /// For how long a turn is to measure, as far as the measurement has a choice.
        milliseconds: u64,
    },
    /// Take one turn of what was prepared; answered by [`Answer::Taken`].
    Run,
    /// Let go of what was prepared; answered by [`Answer::Ready`].
    Release,
}

/// What a participant answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// The participant runs; said once, unasked.
    Hello {
        /// What it has found out about the machine: names and values.
        #[serde(default)]
        facts: BTreeMap<String, String>,
    },
    /// The request is done.
    Ready,
    /// A turn.
    Taken(Turn),
    /// The measurement cannot be made here, which is no error.
    Skipped {
        /// Why not.
        reason: String,
    },
    /// Something failed.
    Failed {
        /// What.
        reason: String,
    },
}

/// What one turn measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Samples by the measure they belong to, in its base unit (seconds, bytes per second).
    pub samples: BTreeMap<String, Vec<f64>>,
    /// How many operations the turn did.
    pub operations: u64,
    /// How long the turn took, in seconds.
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_as_the_python_participant_writes_them() {
        let line =
            r#"{"is": "taken", "samples": {"app.linear": [0.5]}, "operations": 3, "seconds": 1.5}"#;
        let samples = BTreeMap::from([("app.linear".to_owned(), vec![0.5])]);
        let turn = Turn { samples, operations: 3, seconds: 1.5 };
        assert_eq!(serde_json::from_str::<Answer>(line).unwrap(), Answer::Taken(turn));
        assert_eq!(serde_json::from_str::<Answer>(r#"{"is": "ready"}"#).unwrap(), Answer::Ready);
        let hello = Answer::Hello { facts: BTreeMap::new() };
        assert_eq!(serde_json::from_str::<Answer>(r#"{"is": "hello"}"#).unwrap(), hello);
        let request = Request::Prepare { measure: "a".into(), milliseconds: 5 };
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"do":"prepare","measure":"a","milliseconds":5}"#
        );
        assert_eq!(serde_json::to_string(&Request::Run).unwrap(), r#"{"do":"run"}"#);
    }
}
