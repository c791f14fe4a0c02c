use super::*;

#[track_caller]
fn check(rules: &str, name: &str, expected: Option<&str>) {
    let rules = MappingRules::parse(rules).unwrap();
    assert_eq!(rules.apply(name).as_deref(), expected);
}

#[test]
fn the_first_rule_that_matches_the_whole_name_makes_the_user() {
    let name = "CN=Duke,OU=ServiceUsers,O=Org,C=US";
    check("DEFAULT", name, Some(name));
    check("", name, Some(name));
    check("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", name, Some("Duke"));
    check(
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L",
        name,
        Some("duke@serviceusers"),
    );
    check(
        "RULE:^cn=(.*?),.*$/$1/, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT",
        name,
        Some("DUKE"),
    );
    check("RULE:^CN=Nobody$/x/", name, None);
    check("RULE:CN=Duke/x/,DEFAULT", name, Some(name));
    check("RULE:^CN=(.*?),.*$/a\\/$1\\$2$7/", name, Some("a/Duke$2$7"));
}

#[test]
fn what_is_no_rule_is_refused() {
    for bad in [
        "RULE",
        "RULE:a",
        "RULE:a/b",
        "RULE:(/b/",
        "DEFAULTX",
        "RULE:a/b/X",
        "nonsense",
    ] {
        assert!(MappingRules::parse(bad).is_err(), "{bad}");
    }
}

/// A certificate of openssl with an attribute of every kind.
const EVERY_KIND: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIICxjCCAm0CFDO6n0yGcDUnLG4ru9drfq05087zMAoGCCqGSM49BAMCMIHkMQsw\n\
CQYDVQQGEwJERTEdMBsGA1UECgwUU2VhLCBXYWxsICsgQ289MTs8eD4xDzANBgNV\n\
BAsMBnBhZGRlZDEWMBQGA1UEAwwNw4RyZ2VyIFwgYmFjazEaMBgGCSqGSIb3DQEJ\n\
ARYLYUBiLmV4YW1wbGUxEjAQBgoJkiaJk/IsZAEBDAJ1MTEXMBUGCgmSJomT8ixk\n\
ARkWB2V4YW1wbGUxCzAJBgNVBAUTAjc3MQ8wDQYDVQQJDAZNYWluIDExDDAKBgNV\n\
BAcMA1VsbTELMAkGA1UECAwCQlcxCzAJBgNVBAwMAkRyMCAXDTI2MTEzMDA3MzY1\n\
NVoYDzIxMjYxMTA2MDczNjU1WjCB5DELMAkGA1UEBhMCREUxHTAbBgNVBAoMFFNl\n\
YSwgV2FsbCArIENvPTE7PHg+MQ8wDQYDVQQLDAZwYWRkZWQxFjAUBgNVBAMMDcOE\n\
cmdlciBcIGJhY2sxGjAYBgkqhkiG9w0BCQEWC2FAYi5leGFtcGxlMRIwEAYKCZIm\n\
iZPyLGQBAQwCdTExFzAVBgoJkiaJk/IsZAEZFgdleGFtcGxlMQswCQYDVQQFEwI3\n\
NzEPMA0GA1UECQwGTWFpbiAxMQwwCgYDVQQHDANVbG0xCzAJBgNVBAgMAkJXMQsw\n\
CQYDVQQMDAJEcjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABKUg9BzJEwXDd+Gy\n\
6XZt+QeJDtlj9LC5gzGY7V3bGxsNc9zUy9elp8EYMqP0cEV+hURsLH9/ra9iIhJu\n\
h53aDKMwCgYIKoZIzj0EAwIDRwAwRAIgZEsFk4IRfpR/P6k52j0M+SlT0jMtEbiF\n\
QkUP/8bShocCIHefiDneoyLozxt7Z4uEKab58hsnWgB+GYiaOq/PyRZ9\n\
-----END CERTIFICATE-----\n";
/// One with two attributes in one place, and white space before a name.
const TWO_IN_ONE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBzzCCAXWgAwIBAgIUGZKp2FkPnHVzVIcdKi5RKVKZjsQwCgYIKoZIzj0EAwIw\n\
PDELMAkGA1UEBhMCVVMxHTAMBgNVBAMMBW11bHRpMA0GA1UECwwGdmFsdWVkMQ4w\n\
DAYDVQQDDAUgIHR3bzAgFw0yNjExMzAwNzM2NTVaGA8yMTI2MTEwNjA3MzY1NVow\n\
PDELMAkGA1UEBhMCVVMxHTAMBgNVBAMMBW11bHRpMA0GA1UECwwGdmFsdWVkMQ4w\n\
DAYDVQQDDAUgIHR3bzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABD63N/k/oou+\n\
/+6i5qV3daf6AJzLCfy3YXXCgoJbfeu2sLqZn3vNaMeKwhHab9Jc/NMFi6vWjLhY\n\
hGxtC1crZ+OjUzBRMB0GA1UdDgQWBBT5kPK5BLUJykzXDdzWINlUdevAnTAfBgNV\n\
HSMEGDAWgBT5kPK5BLUJykzXDdzWINlUdevAnTAPBgNVHRMBAf8EBTADAQH/MAoG\n\
CCqGSM49BAMCA0gAMEUCIF/42U1OaKHYYhmlPv3ml72o/SmLe/rWGTSH8+bye8fL\n\
AiEA1w+qB2dxjMrRmlOlqovLZ5Sl2OTMnxI8uSiR8KHlRGY=\n\
-----END CERTIFICATE-----\n";

/// The expected names are those of `X500Principal.getName()` of Java 17.
#[test]
fn a_subject_is_written_as_java_writes_it() {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let name = |pem: &str| subject(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap());
    assert_eq!(
        name(EVERY_KIND).unwrap(),
        "2.5.4.12=#0c024472,ST=BW,L=Ulm,STREET=Main 1,2.5.4.5=#13023737,DC=example,UID=u1,\
         1.2.840.113549.1.9.1=#160b6140622e6578616d706c65,CN=Ärger \\\\ back,OU=padded,\
         O=Sea\\, Wall \\+ Co\\=1\\;\\<x\\>,C=DE"
    );
    assert_eq!(
        name(TWO_IN_ONE).unwrap(),
        "CN=\\ \\ two,CN=multi+OU=valued,C=US"
    );
    assert_eq!(subject(b"no certificate"), None);
}
