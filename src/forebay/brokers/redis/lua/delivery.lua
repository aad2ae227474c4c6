return delivery(A.id) or false
