//! What messages do to the worker's chains, as their descriptions say.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// What may be said; `api/README.md` has the meanings.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Keeps,
    Continues,
    Ends,
    EndsInContext,
    EndsInStream,
    EndsWithFunction,
    BarsStream,
    Bars,
}

impl Kind {
    /// What the field that it is about names, and what the field is called unless it is said.
    fn subject(self) -> Option<&'static str> {
        match self {
            Kind::EndsInStream | Kind::BarsStream => Some("stream"),
            Kind::EndsWithFunction => Some("function"),
            _ => None,
        }
    }
}

/// What one message does to chains.
pub(super) struct Chains {
    kind: Kind,
    /// The expression for what the effect is about.
    of: Option<String>,
    /// A condition, in terms of `message`.
    condition: Option<String>,
}

impl Chains {
    pub(super) fn new(
        (kind, of, condition): (Option<Kind>, Option<&str>, Option<&str>),
        fields: &[(String, String)],
    ) -> Result<Chains> {
        let Some(kind) = kind else {
            bail!("`chains` says what it does to chains of launches, mostly `chains = \"keeps\"`");
        };
        let ty =
            |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, ty)| ty.as_str());
        let of = match kind.subject() {
            None if of.is_some() => bail!("`chains_of` has no effect: nothing is asked of a field"),
            None => None,
            Some(subject) => {
                let field = of.unwrap_or(subject);
                let ty = ty(field).with_context(|| {
                    format!("its `chains` needs a {subject}, but it has no field `{field}`")
                })?;
                Some(match (subject, ty) {
                    ("stream", "stream") | ("function", "object") => format!("message.{field}"),
                    ("stream", "object") => format!("StreamId::created(message.{field})"),
                    _ => bail!("its field `{field}: {ty}` does not name a {subject}"),
                })
            }
        };
        let condition = match condition {
            None => None,
            Some(_) if matches!(kind, Kind::Keeps | Kind::Continues) => {
                bail!("`chains_if` has no effect: no chain ends")
            }
            Some(condition) => {
                let field = condition.split(' ').next().unwrap_or_default();
                if ty(field).is_none() {
                    bail!("`chains_if` begins with a field, not {field:?}");
                }
                Some(format!("message.{condition}"))
            }
        };
        Ok(Chains { kind, of, condition })
    }

    pub(super) fn continues(&self) -> bool {
        self.kind == Kind::Continues
    }

    pub(super) fn has_effect(&self) -> bool {
        !matches!(self.kind, Kind::Keeps | Kind::Continues)
    }

    /// Whether the statement looks at the message.
    pub(super) fn reads_fields(&self) -> bool {
        self.of.is_some() || self.condition.is_some()
    }

    /// Whether it is about a stream that is named as an object is.
    pub(super) fn is_of_created(&self) -> bool {
        self.of.as_ref().is_some_and(|of| of.starts_with("StreamId"))
    }

    /// What the dispatch does before the message is handled.
    pub(super) fn statement(&self) -> String {
        if !self.has_effect() {
            return String::new();
        }
        let of = self.of.as_ref().map_or(String::new(), |of| format!("({of})"));
        let statement = format!("commands.affect_chains(Effect::{:?}{of});", self.kind);
        match &self.condition {
            Some(condition) => format!("if {condition} {{\n{statement}\n}}\n"),
            None => format!("{statement}\n"),
        }
    }
}
