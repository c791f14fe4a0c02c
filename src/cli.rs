//! The command line.
//!
//! Owns:     the options and their help texts.
//! Does not: check settings (`config` does) or start anything.
use crate::config::CommandLine;
use crate::tools::{DoctorArgs, DumpArgs, UserCommand, VerifyArgs};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// The version and the commit it is of.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("SEAWALL_COMMIT"),
    ")"
);

/// A Kafka-wire-compatible broker for one machine and a filer.
///
/// Without options it listens on 127.0.0.1:9092 and stores under ./data.
#[derive(Debug, Parser)]
#[command(name = "seawall", version = VERSION, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the broker; so does `seawall` without a command.
    Serve(ServeArgs),
    /// Look for damage in the data of a broker, running or not; changes nothing.
    ///
    /// Exits with 0 if there is none, with 1 if there is, with 2 if it could not look.
    Verify(VerifyArgs),
    /// Print the batches of log files, this broker's or Kafka's.
    ///
    /// Exits with 0 if every byte belongs to a good batch, with 1 if not, with 2 if a file could not be read.
    DumpLog(DumpArgs),
    /// Add, list or remove users while the broker is stopped; those of a running one are changed by kafka-configs.
    User {
        /// What to do.
        #[command(subcommand)]
        what: UserCommand,
    },
    /// Say whether a directory is fit for data that must not be lost, and how fast it is.
    ///
    /// Exits with 0 if it is, warnings or not; with 1 if it is not; with 2 if it could not look.
    Doctor(DoctorArgs),
    /// Write the manual pages, the shell completions and the default configuration; packages are built with it.
    #[command(hide = true)]
    Papers {
        /// Where to; it is made.
        #[arg(value_name = "DIR")]
        to: PathBuf,
    },
    /// Check a configuration, or print what there is to configure.
    Config {
        /// What to do.
        #[command(subcommand)]
        what: ConfigCommand,
    },
}

/// What `seawall config` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the packaged server.properties: every key, with its default.
    Default,
    /// Print what /metrics tells.
    Metrics,
    /// Say whether a broker would start with this configuration, and if not, why and what to do.
    ///
    /// Exits with 0 if it would, with 1 if not, with 2 if the file could not be read.
    Check(ServeArgs),
}

/// The options of a broker.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServeArgs {
    /// A configuration file in the format of Kafka's server.properties.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the data is: short for --set log.dirs=DIR.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where clients connect, as host:port: short for --set listeners=PLAINTEXT://host:port.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// A setting that beats the file; may be given many times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Cli {
    /// The command asked for: `serve` where none is named.
    pub(crate) fn command(self) -> Command {
        self.command.unwrap_or(Command::Serve(self.serve))
    }
}

impl From<ServeArgs> for CommandLine {
    fn from(args: ServeArgs) -> CommandLine {
        CommandLine {
            file: args.config,
            data_dir: args.data_dir,
            listen: args.listen,
            set: args.set,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve_args(line: &[&str]) -> CommandLine {
        match Cli::try_parse_from(line).unwrap().command() {
            Command::Serve(args) => args.into(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_mean_the_same_with_and_without_the_word_serve() {
        for line in [&["seawall", "serve"][..], &["seawall"][..]] {
            let mut line = line.to_vec();
            line.extend([
                "--config",
                "f",
                "--data-dir",
                "d",
                "--listen",
                ":1",
                "--set",
                "a=b",
                "--set",
                "c=d=e",
            ]);
            let args = serve_args(&line);
            assert_eq!(args.file, Some("f".into()));
            assert_eq!(args.data_dir, Some("d".into()));
            assert_eq!(args.listen.as_deref(), Some(":1"));
            assert_eq!(args.set, ["a=b", "c=d=e"]);
        }
    }

    #[test]
    fn the_default_file_can_be_printed() {
        let parsed = Cli::try_parse_from(["seawall", "config", "default"])
            .unwrap()
            .command();
        assert!(matches!(
            parsed,
            Command::Config {
                what: ConfigCommand::Default
            }
        ));
    }
}
