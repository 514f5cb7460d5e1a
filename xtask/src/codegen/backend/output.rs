//! The code: traits, what `Remote` does for them, what `Several` and `Recorder` do.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::method::{Method, Returned, Route, Servers, names, server_of};
use super::{Backends, HEADER, Trait};
use crate::codegen::wire::Class;

/// The module of `outboard_front` that has the plain types.
const PLAIN: &str = "backend";

impl Backends {
    /// The traits.
    pub(crate) fn traits(&self) -> String {
        let mut out = format!(
            "{HEADER}#![allow(unused_variables, clippy::too_many_arguments)]\n#![expect(clippy::missing_errors_doc, reason = \"`Backend` documents the errors of all methods\")]\n\n"
        );
        let defaults = self
            .methods()
            .any(|method| method.default.as_ref().is_some_and(|body| body.contains("CUDA_")));
        if defaults {
            out.push_str("use outboard_abi::CUresult;\n");
        }
        out.push_str(&self.uses("crate::backend", &["Result"]));
        for (index, one) in self.traits.iter().enumerate() {
            let parts: Vec<&str> = match index {
                0 => self.traits[1..]
                    .iter()
                    .map(|part| part.name.as_str())
                    .chain(["Send", "Sync", "'static"])
                    .collect(),
                _ => Vec::new(),
            };
            let bounds: Vec<&str> = parts.into_iter().chain(["Sized"]).collect();
            let _ = writeln!(
                out,
                "{}pub trait {}: {} {{",
                docs(&one.docs),
                one.name,
                bounds.join(" + ")
            );
            for method in &one.methods {
                let class = match method.class {
                    Some(Class::Posted) => " Posted.",
                    Some(Class::Call) => " Call.",
                    None => "",
                };
                out.push_str(&docs(&format!("{}{class}", method.docs.trim())));
                if let Some(safety) = &method.safety {
                    let _ = write!(out, "///\n/// # Safety\n{}", docs(safety));
                }
                match &method.default {
                    Some(body) if body.starts_with("CUDA_") => {
                        let _ = writeln!(out, "{} {{\nErr(CUresult::{body})\n}}", method.head());
                    }
                    Some(body) => {
                        let _ = writeln!(out, "{} {{\n{body}\n}}", method.head());
                    }
                    None => {
                        let _ = writeln!(out, "{};", method.head());
                    }
                }
            }
            out.push_str("}\n\n");
        }
        out
    }

    /// What `Remote` does for each method: sends the message, or has code of its own under the same
    /// name.
    pub(crate) fn forward(&self) -> String {
        // A method that is missing would be this one again.
        let mut out = format!(
            "{HEADER}#![deny(unconditional_recursion)]\n#![allow(unused_imports, unused_variables, clippy::clone_on_copy, clippy::too_many_arguments)]\n\n\
             use outboard_wire::messages as msg;\n\n{}use crate::remote::{{NO_CONTEXT, Remote}};\nuse crate::tokens::{{Kind, decode, encode, read}};\n\n",
            self.uses("outboard_front::backend", &self.trait_names())
        );
        for one in &self.traits {
            let _ = writeln!(out, "impl {} for Remote {{", one.name);
            for method in one.of_one_server() {
                let _ = match &method.sent {
                    Some(sent) => writeln!(out, "{} {{\n{}\n}}\n", method.head(), sent.expression),
                    None => writeln!(
                        out,
                        "#[inline]\n{} {{\n{}\n}}\n",
                        method.head(),
                        method.passed_on()
                    ),
                };
            }
            out.push_str("}\n\n");
        }
        out
    }

    /// What `Several` does for each method: has the server do it whose context or device it is
    /// about.
    pub(crate) fn several(&self) -> String {
        let mut out = format!(
            "{HEADER}#![deny(unconditional_recursion)]\n#![allow(unused_imports, clippy::too_many_arguments)]\n\n{}use crate::several::{{Member, Several, one_server}};\n\n",
            self.uses("crate::backend", &self.trait_names())
        );
        for one in &self.traits {
            let _ = writeln!(out, "impl<S: Member> {} for Several<S> {{", one.name);
            for method in one.of_servers() {
                let _ = writeln!(out, "#[inline]\n{} {{\n{}\n}}\n", method.head(), method.routed());
            }
            out.push_str("}\n\n");
        }
        out
    }

    /// What `Recorder` does for each method: notes it, and answers as it was told.
    pub(crate) fn recorder(&self) -> String {
        let mut out = format!(
            "{HEADER}#![allow(clippy::too_many_arguments)]\n\n{}use crate::backend::Recorder;\n\n",
            self.uses("crate::backend", &self.trait_names())
        );
        let recorded: Vec<&Method> = self.methods().collect();
        let _ = writeln!(
            out,
            "/// The methods that are recorded.\npub(crate) const METHODS: [&str; {}] = [{}];\n",
            recorded.len(),
            recorded
                .iter()
                .map(|method| format!("{:?}", method.name))
                .collect::<Vec<_>>()
                .join(", ")
        );
        for one in &self.traits {
            let _ = writeln!(out, "impl {} for Recorder {{", one.name);
            for method in &one.methods {
                let _ = writeln!(out, "{} {{", method.head());
                let how = match method.returned {
                    Returned::Outcome(_) => "outcome",
                    Returned::Plain(_) => "answer",
                };
                let shown: Vec<String> = method
                    .arguments
                    .iter()
                    .map(|(name, _)| format!("{name}: {{{name}:?}}"))
                    .collect();
                let _ = writeln!(
                    out,
                    "self.{how}({:?}, format_args!({:?}))\n}}\n",
                    method.name,
                    shown.join(", ")
                );
            }
            out.push_str("}\n\n");
        }
        out
    }

    fn methods(&self) -> impl Iterator<Item = &Method> {
        self.traits.iter().flat_map(|one| &one.methods)
    }

    fn trait_names(&self) -> Vec<&str> {
        self.traits.iter().map(|one| one.name.as_str()).chain(["Result"]).collect()
    }

    /// Imports of the types that signatures have, and of these names; `plain` is where the plain
    /// types are.
    fn uses(&self, plain: &str, more: &[&str]) -> String {
        let mut by_module: BTreeMap<&str, Vec<&str>> = BTreeMap::from([(plain, more.to_vec())]);
        let texts = self.methods().flat_map(|method| {
            let (Returned::Outcome(returned) | Returned::Plain(returned)) = &method.returned;
            method.arguments.iter().map(|(_, ty)| ty).chain([returned])
        });
        for name in texts.flat_map(|ty| names(ty)) {
            if let Some((name, module)) = self.types.get_key_value(name) {
                let module = if module == PLAIN { plain } else { module };
                let imported = by_module.entry(module).or_default();
                if !imported.contains(&name.as_str()) {
                    imported.push(name);
                }
            }
        }
        let mut out = String::new();
        for (module, mut names) in by_module {
            names.sort_unstable();
            let _ = writeln!(out, "use {module}::{{{}}};", names.join(", "));
        }
        out.push('\n');
        out
    }
}

impl Trait {
    fn of_servers(&self) -> impl Iterator<Item = &Method> {
        self.methods.iter().filter(|method| !matches!(method.route, Route::Nowhere))
    }

    fn of_one_server(&self) -> impl Iterator<Item = &Method> {
        let together = |method: &&Method| matches!(method.route, Route::Process(Servers::Together));
        self.of_servers().filter(move |method| !together(method))
    }
}

impl Method {
    /// Its declaration, without a body.
    fn head(&self) -> String {
        let arguments = self.arguments.iter().map(|(name, ty)| format!("{name}: {ty}"));
        let all: Vec<String> =
            std::iter::once("&'static self".to_owned()).chain(arguments).collect();
        let returned = match &self.returned {
            Returned::Outcome(ty) => format!(" -> Result<{ty}>"),
            Returned::Plain(ty) if ty == "()" => String::new(),
            Returned::Plain(ty) => format!(" -> {ty}"),
        };
        let keyword = if self.safety.is_some() { "unsafe fn" } else { "fn" };
        format!("{keyword} {}({}){returned}", self.name, all.join(", "))
    }

    /// The call of the type's own method of this name. One server does not need to be told which it
    /// is.
    fn passed_on(&self) -> String {
        self.call_with("self", self.arguments.iter().filter(|(name, _)| name != "home"))
    }

    /// The call of this method of one of several servers.
    fn routed(&self) -> String {
        match &self.route {
            Route::Of(server) => {
                let others: String = self
                    .others()
                    .map(|other| format!("one_server({server}, {other})?;\n"))
                    .collect();
                let server = format!("let server = self.server({server})?;\n");
                format!("{others}{server}{}", self.call("server"))
            }
            Route::Process(Servers::First) => self.call("self.first()"),
            Route::Process(Servers::Each) => format!("self.each(|server| {})", self.call("server")),
            Route::Process(Servers::All) => {
                format!("self.everywhere(|server| {})", self.call("server"))
            }
            Route::Process(Servers::Own | Servers::Together) | Route::Nowhere => self.call("self"),
        }
    }

    /// Expressions for the servers of what the method is about besides.
    fn others(&self) -> impl Iterator<Item = String> {
        let several = |(name, ty): &(String, String)| match ty.as_str() {
            "&[(DeviceId, u32)]" => {
                Some(format!("{name}.iter().map(|(device, _)| device.server())"))
            }
            _ => server_of(name, ty).map(|server| format!("[{server}]")),
        };
        self.arguments.iter().filter_map(several).skip(1)
    }

    /// The call of the method of this name of what the expression is.
    fn call(&self, receiver: &str) -> String {
        self.call_with(receiver, &self.arguments)
    }

    fn call_with<'a>(
        &self,
        receiver: &str,
        arguments: impl IntoIterator<Item = &'a (String, String)>,
    ) -> String {
        let arguments: Vec<&str> = arguments.into_iter().map(|(name, _)| name.as_str()).collect();
        let call = format!("{receiver}.{}({})", self.name, arguments.join(", "));
        match self.safety {
            Some(_) => format!("// SAFETY: by the contract of this method.\nunsafe {{ {call} }}"),
            None => call,
        }
    }
}

/// A comment of documentation.
fn docs(text: &str) -> String {
    text.trim().lines().map(|line| format!("/// {line}\n").replace("/// \n", "///\n")).collect()
}
