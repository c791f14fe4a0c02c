//! The broker as the event loops see it: class and dispatch by the table.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use seawall_net::wire::RequestHeader;
use seawall_net::{Admission, Class, CloseReason, ConnInfo, Flow, ReplySlot, Request, Service};

use super::slot::{Slot, Work};
use super::{Call, Conn, api_versions, fetch, find};
use crate::broker::Broker;
use crate::security::quota::Client;
use crate::security::{Principal, Session};

/// Kafka closes a connection for these; so do we, with the reason in the log.
const UNKNOWN_API: CloseReason = CloseReason::Service("an API key that is not served");
const NOT_LOGGED_IN: CloseReason = CloseReason::Service("a request before the login");
const UNKNOWN_VERSION: CloseReason = CloseReason::Service("a version that is not served");

/// The door of the broker for the event loops.
pub struct KafkaService {
    broker: Arc<Broker>,
}

impl KafkaService {
    /// Serves `broker`.
    pub fn new(broker: Arc<Broker>) -> Self {
        Self { broker }
    }
}

/// Who pays for a request; nobody where no limit is set.
fn client(broker: &Broker, conn: &Conn, request: &Request) -> Option<Client> {
    broker.quotas.has_limits().then(|| Client {
        user: conn.session.principal.shared_name(),
        id: request.header.client_id.clone().unwrap_or_default(),
    })
}

impl Call<'_> {
    /// Who pays for this request; nobody where no limit is set.
    pub(super) fn client(&self) -> Option<Client> {
        client(self.broker, self.conn, &self.request)
    }
}

impl Service for KafkaService {
    type Conn = Conn;

    fn admit(&self, address: IpAddr, _listener: usize) -> Admission {
        let wait = self.broker.quotas.connect(address);
        if wait.is_zero() {
            Admission::Yes
        } else {
            Admission::CloseAfter(wait)
        }
    }

    fn opened(&self, info: &ConnInfo) -> Conn {
        // A plaintext listener has no login to wait for.
        info.set_logged_in(true);
        Conn {
            info: info.clone(),
            session: Session {
                principal: Principal::anonymous(),
                host: info.peer().ip().to_canonical(),
                listener: info.listener(),
            },
            logged_in: true,
            parked: fetch::Parked::default(),
        }
    }

    fn class(&self, conn: &Conn, header: &RequestHeader) -> Class {
        match find(header.api_key) {
            None => Class::Refuse(UNKNOWN_API),
            Some(api) if !conn.logged_in && !api.before_login => Class::Refuse(NOT_LOGGED_IN),
            Some(api) if api.versions.contains(&header.api_version) => api.class,
            // KIP-511: answered in version 0 form, whatever was asked.
            Some(api) if api.key == api_versions::KEY => Class::Exclusive,
            Some(_) => Class::Refuse(UNKNOWN_VERSION),
        }
    }

    fn call(&self, conn: &mut Conn, request: Request, slot: ReplySlot) -> Flow {
        let Some(api) = find(request.header.api_key) else {
            slot.close(UNKNOWN_API);
            return Flow::Done;
        };
        api.requests.fetch_add(1, Ordering::Relaxed);
        let client = client(&self.broker, conn, &request);
        let _work = client.as_ref().map(|who| Work::of(&self.broker, who));
        let slot = match client {
            None => Slot::free(slot),
            Some(client) => {
                let about = (api.key, request.header.api_version, request.body.len());
                Slot::tolled(slot, &self.broker, client, about)
            }
        };
        (api.handle)(Call {
            broker: &self.broker,
            conn,
            api,
            request,
            slot,
        })
    }

    fn finished(&self, conn: &mut Conn) {
        conn.parked.hurry();
    }

    fn closed(&self, conn: Conn) {
        conn.parked.cancel();
    }
}
