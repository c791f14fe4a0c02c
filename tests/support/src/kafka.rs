//! Apache Kafka in the place of the broker under test, for developers who check the tests' expected values.
//!
//! `SEAWALL_TEST_KAFKA=<directory with the jars of kafka_2.13 and slf4j-nop>` makes every test start a KRaft node.
//! `SEAWALL_TEST_KAFKA_AT=<address>` beside it lets tests without settings of their own share a node that runs there.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The directory with Kafka's jars, when the tests run against Kafka.
#[must_use]
pub fn jars() -> Option<PathBuf> {
    env::var_os("SEAWALL_TEST_KAFKA").map(PathBuf::from)
}

/// The node that tests without settings share.
#[must_use]
pub fn shared_node() -> Option<SocketAddr> {
    jars()?;
    env::var("SEAWALL_TEST_KAFKA_AT").ok()?.parse().ok()
}

/// One KRaft node.
pub(crate) struct Node<'a> {
    pub(crate) jars: &'a Path,
    pub(crate) addr: SocketAddr,
    pub(crate) controller: SocketAddr,
    pub(crate) data: &'a Path,
}

impl Node<'_> {
    /// The command that runs the node; formats its directory the first time.
    pub(crate) fn command(&self, scratch: &Path, settings: &[(String, String)]) -> Command {
        let file = scratch.join("server.properties");
        fs::write(&file, self.properties(settings)).expect("write server.properties");
        if !self.data.join("meta.properties").exists() {
            self.format(&file);
        }
        let mut command = self.java();
        command.arg("-Xmx512m").arg("kafka.Kafka").arg(&file);
        command
    }

    fn format(&self, file: &Path) {
        let status = self
            .java()
            .args([
                "kafka.tools.StorageTool",
                "format",
                "--standalone",
                "-t",
                "MkU3OEVBNTcwNTJENDM2Qg",
                "-c",
            ])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("run StorageTool");
        assert!(status.success(), "StorageTool format: {status}");
    }

    fn java(&self) -> Command {
        let mut command = Command::new("java");
        command
            .arg("-XX:TieredStopAtLevel=1")
            .arg("-cp")
            .arg(format!("{}/*", self.jars.display()));
        command
    }

    fn properties(&self, settings: &[(String, String)]) -> String {
        let has = |key: &str| settings.iter().any(|(name, _)| name == key);
        let mut lines = vec![
            "process.roles=broker,controller".to_owned(),
            "node.id=1".to_owned(),
            format!("controller.quorum.bootstrap.servers={}", self.controller),
            "controller.listener.names=CONTROLLER".to_owned(),
            format!("log.dirs={}", self.data.display()),
            "offsets.topic.replication.factor=1".to_owned(),
            "transaction.state.log.replication.factor=1".to_owned(),
            "transaction.state.log.min.isr=1".to_owned(),
        ];
        if !has("listener.security.protocol.map") {
            lines.push(
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
                    .to_owned(),
            );
        }
        if !has("listeners") {
            lines.push(format!(
                "listeners=PLAINTEXT://{},CONTROLLER://{}",
                self.addr, self.controller
            ));
        }
        lines.extend(settings.iter().map(|(key, value)| match key.as_str() {
            "listeners" => format!("listeners={value},CONTROLLER://{}", self.controller),
            "listener.security.protocol.map" => format!("{key}={value},CONTROLLER:PLAINTEXT"),
            _ => format!("{key}={value}"),
        }));
        lines.join("\n")
    }
}
