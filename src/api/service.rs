//! The broker as the event loops see it: class and dispatch by the table.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use seawall_net::wire::RequestHeader;
use seawall_net::{
    Admission, BARE_KEY, Class, CloseReason, ConnInfo, Flow, ReplySlot, Request, Service,
};

use super::slot::{Slot, Work, is_login};
use super::{Call, Conn, api_versions, fetch, find, sasl_authenticate, sasl_handshake};
use seawall_planted::planted;

use crate::broker::Broker;
use crate::security::quota::Client;
use crate::security::sasl::{LOGINS_EXPIRED, Login};
use crate::security::{Principal, Session};

/// Kafka closes a connection for these; so do we, with the reason in the log.
const UNKNOWN_API: CloseReason = CloseReason::Service("an API key that is not served");
const NOT_LOGGED_IN: CloseReason = CloseReason::Service("a request before the login");
const IN_LOGIN: CloseReason = CloseReason::Service("a request in the middle of a login");
const LOGIN_EXPIRED: CloseReason = CloseReason::Service("its login has run out");
const NO_NAME: CloseReason =
    CloseReason::Service("no rule makes a user of the name in its certificate");
const UNKNOWN_VERSION: CloseReason = CloseReason::Service("a version that is not served");

/// What keeps a connection from calling everything.
pub(super) enum Gate {
    /// Nothing: its listener asks for no login, or TLS has seen to it.
    Open,
    /// A login by SASL, before, within and after it.
    Login(Arc<Login>),
    /// It may call nothing at all.
    Shut(CloseReason),
}

impl Gate {
    /// Whether nobody is known yet behind the connection.
    fn keeps_out(&self) -> bool {
        match self {
            Self::Open => false,
            Self::Login(login) => !login.is_open(),
            Self::Shut(_) => true,
        }
    }

    /// Why a request of this key may not be called now.
    fn refuses(&self, key: i16) -> Option<CloseReason> {
        let login = match self {
            Self::Open => return None,
            Self::Shut(why) => return Some(*why),
            Self::Login(login) => login,
        };
        let token = key == BARE_KEY || key == sasl_authenticate::KEY;
        if login.is_midway() {
            let allowed = token || key == sasl_handshake::KEY;
            return (!allowed).then_some(IN_LOGIN);
        }
        if login.is_open() {
            let expired = key != sasl_handshake::KEY && login.has_expired();
            LOGINS_EXPIRED.fetch_add(u64::from(expired), Ordering::Relaxed);
            return expired.then_some(LOGIN_EXPIRED);
        }
        let allowed = find(key).is_some_and(|api| api.before_login) || planted("login-gate-open");
        (!allowed).then_some(NOT_LOGGED_IN)
    }
}

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

/// Who pays for a request; nobody where no limit is set, and no stranger: they could fill the meters with names.
fn client(broker: &Broker, conn: &Conn, request: &Request) -> Option<Client> {
    let limited = broker.quotas.has_limits() && !conn.gate.keeps_out();
    limited.then(|| Client {
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
        let door = self.broker.doors.get(info.listener());
        let sasl = door.and_then(|door| door.sasl.as_ref());
        let gate = sasl.map_or(Gate::Open, |sasl| Gate::Login(Login::new(sasl)));
        // Without SASL there is no login to wait for.
        info.set_logged_in(sasl.is_none());
        Conn {
            info: info.clone(),
            session: Session {
                principal: Principal::anonymous(),
                host: info.peer().ip().to_canonical(),
                listener: info.listener(),
            },
            gate,
            parked: fetch::Parked::default(),
        }
    }

    fn secured(&self, conn: &mut Conn, certificate: Option<&[u8]>) {
        let door = self.broker.doors.get(conn.session.listener);
        let tls = door.and_then(|door| door.tls.as_ref());
        // A login by SASL names the user where both are asked for, as in Kafka.
        if let (Some(tls), Some(certificate), Gate::Open) = (tls, certificate, &conn.gate) {
            match tls.user_of(certificate) {
                Some(user) => conn.session.principal = Principal::user(&user),
                None => conn.gate = Gate::Shut(NO_NAME),
            }
        }
    }

    fn class(&self, conn: &Conn, header: &RequestHeader) -> Class {
        if let Some(why) = conn.gate.refuses(header.api_key) {
            return Class::Refuse(why);
        }
        match find(header.api_key) {
            None if header.api_key == BARE_KEY => Class::Exclusive,
            None => Class::Refuse(UNKNOWN_API),
            Some(api) if api.versions.contains(&header.api_version) => api.class,
            // KIP-511: answered in version 0 form, whatever was asked.
            Some(api) if api.key == api_versions::KEY => Class::Exclusive,
            Some(_) => Class::Refuse(UNKNOWN_VERSION),
        }
    }

    fn call(&self, conn: &mut Conn, request: Request, slot: ReplySlot) -> Flow {
        if let Gate::Login(login) = &conn.gate
            && let Some(principal) = login.take_fresh()
        {
            conn.session.principal = principal;
        }
        let bare = request.header.api_key == BARE_KEY;
        let key = if bare {
            sasl_authenticate::KEY
        } else {
            request.header.api_key
        };
        let Some(api) = find(key) else {
            slot.close(UNKNOWN_API);
            return Flow::Done;
        };
        api.requests.fetch_add(1, Ordering::Relaxed);
        let client = client(&self.broker, conn, &request).filter(|_| !is_login(key));
        let _work = client.as_ref().map(|who| Work::of(&self.broker, who));
        let slot = match client {
            None => Slot::free(slot),
            Some(client) => {
                let about = (api.key, request.header.api_version, request.body.len());
                Slot::tolled(slot, &self.broker, client, about)
            }
        };
        let handle = if bare {
            sasl_authenticate::handle_bare
        } else {
            api.handle
        };
        handle(Call {
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
