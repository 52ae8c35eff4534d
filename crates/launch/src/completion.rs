//! Completions of the command line for shells.

use clap::Command;

/// Supported shells.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "tcsh"];

/// A script that completes the options of `command`, and files after them, for the programs of `names`.
pub fn script(shell: &str, command: &Command, names: &[&str]) -> String {
    let options: Vec<&clap::Arg> = command.get_arguments().filter(|arg| arg.get_long().is_some()).collect();
    let long = |arg: &clap::Arg| format!("--{}", arg.get_long().unwrap_or_default());
    let words: Vec<String> = options.iter().map(|arg| long(arg)).collect();
    match shell {
        "zsh" => {
            let entries: Vec<String> = options
                .iter()
                .map(|arg| {
                    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                    let help = help.split(['.', ':', ';']).next().unwrap_or_default().replace(['\'', '[', ']'], "");
                    let value = if arg.get_action().takes_values() { ":value:_files" } else { "" };
                    format!("    '{}[{help}]{value}'", long(arg))
                })
                .collect();
            let names = names.join(" ");
            format!(
                "#compdef {names}\n_rushlight_run() {{\n  _arguments -s \\\n{} \\\n    '*:program:_files'\n}}\ncompdef _rushlight_run {names}\n",
                entries.join(" \\\n")
            )
        }
        "tcsh" => names
            .iter()
            .map(|name| {
                let options: Vec<&str> = words.iter().map(|word| &word[2..]).collect();
                format!("complete {name} 'c/--/({})/' 'p/*/f/'\n", options.join(" "))
            })
            .collect(),
        _ => format!(
            "_rushlight_run() {{\n    local word=${{COMP_WORDS[COMP_CWORD]}}\n    case $word in\n        -*) COMPREPLY=($(compgen -W '{}' -- \"$word\")) ;;\n        \
             *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n    esac\n}}\ncomplete -o filenames -F _rushlight_run {}\n",
            words.join(" "),
            names.join(" ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_every_option() {
        for shell in SHELLS {
            let text = script(shell, &crate::options::command(), &["torchrun"]);
            for option in ["nproc-per-node", "standalone", "virtual-local-rank"] {
                assert!(text.contains(option) && text.contains("torchrun"), "{shell}: {text}");
            }
        }
    }
}
