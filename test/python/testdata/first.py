import dsec

with dsec.Client() as client, client.create() as session:
    print(session.exec("echo hello from $(id -un)").stdout)
